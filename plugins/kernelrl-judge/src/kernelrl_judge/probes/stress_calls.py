"""A call of the probe `stress`: the exact output, the reference's own errors against it, and a candidate's.

The exact output is the reference's in double precision. Where the reference does not run in it, its output in the
task's own precision stands for the exact one. `stress_bounds` says how far an element may be off beyond
the tolerance in force.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.probes.stress_bounds import ROUNDING, Bounds, bounds, computes_in_double
from kernelrl_judge.probes.stress_coincidences import LOOSENED, loosened
from kernelrl_judge.protocol.trees import leaves, mapped, reals, tensors
from kernelrl_judge.task.comparing import compare_bytes, tolerance
from kernelrl_judge.task.reference import Reference, Trial
from kernelrl_judge.task.source import TaskError

__all__ = ["NOT_FINITE", "NO_MEMORY", "Judged", "StressCall", "judged", "stress_call"]

NO_MEMORY = "not enough memory for double precision"
"""Why there is no call just now, though there may be one another time."""
NOT_FINITE = "the reference is not finite on such inputs"
_OWN_DECISIONS = 64
"""How many times as many whole numbers as the reference an honest kernel may round to the other side."""
_FEW_DECISIONS = 4096
"""Of so many, one may fall to the other side where the reference's own happen not to."""
_LARGEST_UNDECIDED = 0.1
_CHUNK = 1 << 26
_WIDE = (torch.float64, torch.complex128)
_OF_DOUBLES = 1e-8
"""Tolerance of an output that the reference computes in double precision: less than what single precision costs."""


@attrs.frozen
class StressCall:
    """A call of the probe."""

    part: str
    trial: Trial
    """Inputs, and what the reference makes of nearly the same in the task's dtype."""
    exact: Any
    """What it makes of them in double precision."""
    bounds: tuple[Bounds | int | None, ...]
    """For each output tensor or fraction of Python's how far it may be off: whole numbers in so many places; None where
    nothing is decided."""
    decided: float
    """Share of the elements that are decided, the mean over outputs."""
    left: StressCall | None = None
    """The same of what the call leaves in inputs and state that the reference changes, by name, as though it were
    returned; None where there is none."""


@attrs.frozen
class Judged:
    """What a call of the probe gave."""

    wrong: Mismatch | None
    error_ratio: float | None
    """The kernel's largest error over the reference's own; None without floating-point outputs."""


def stress_call(
    reference: Reference, exact: Reference | None, index: int, part: str, inputs: list[Any], near: list[Any]
) -> tuple[StressCall | None, str]:
    """A call on inputs, or None and why the reference decides nothing there.

    Args:
        exact: the reference in double precision; None if it does not run in it.
        index: of the random state of both.
        near: the inputs but for their last bits.
    """
    try:
        own = reference.called(near, index)
        if exact is None:
            wide = reference.called(inputs, index)
        else:
            with _default_dtype(torch.float64):
                wide = exact.called([mapped(value, _widened) for value in inputs], index)
        expected, precise = own.expected, mapped(wide.expected, _widened)
        is_wide = any(tensor.dtype in _WIDE for tensor in tensors(expected))
        same = reference.called(inputs, index).expected if is_wide and exact is not None else None
    except torch.OutOfMemoryError:
        return None, NO_MEMORY
    if not _alike(expected, precise):
        raise TaskError("the reference gives another structure in double precision")
    try:
        rows_apart = bool(reference.facts.get("rows_apart"))
        found, shares = _limits(inputs, expected, precise, part, rows_apart=rows_apart, same=same)
        decided = sum(shares) / len(shares) if shares else 1.0
        if not decided:
            finite = all(bool(torch.isfinite(tensor).all()) for tensor in tensors(reals(precise)))
            small = "the reference's own errors are too large on such inputs"
            return None, small if finite else NOT_FINITE
        left = _left(part, own, wide)
    except torch.OutOfMemoryError:
        return None, NO_MEMORY
    trial = Trial(inputs, expected)
    return StressCall(part, trial, precise, tuple(found), decided, left), ""


def _left(part: str, own: Trial, wide: Trial) -> StressCall | None:
    """What calls of the reference leave in inputs and state, where one of them changes it."""
    expected: dict[str, torch.Tensor] = {}
    exact: dict[str, torch.Tensor] = {}
    pairs = [
        (trial.inputs, trial.inputs if trial.inputs_after is None else trial.inputs_after) for trial in (own, wide)
    ]
    if any(trial.inputs_after is not None for trial in (own, wide)):
        for (path, sent, after, _), (_, wide_sent, wide_after, _) in zip(
            *(leaves(sent, after, after) for sent, after in pairs), strict=True
        ):
            both = ((sent, after), (wide_sent, wide_after))
            if isinstance(sent, torch.Tensor) and any(compare_bytes(*pair) is not None for pair in both):
                expected[f"input {path}"], exact[f"input {path}"] = after, _widened(wide_after)
    for name in sorted(own.state_after.keys() & wide.state_after.keys()):
        expected[f"state {name}"], exact[f"state {name}"] = own.state_after[name], _widened(wide.state_after[name])
    if not expected:
        return None
    found, shares = _limits(own.inputs, expected, exact, part, rows_apart=False)
    return StressCall(part, Trial([], expected), exact, tuple(found), sum(shares) / len(shares))


def _limits(
    inputs: list[Any], expected: Any, precise: Any, part: str, *, rows_apart: bool, same: Any = None
) -> tuple[list[Bounds | int | None], list[float]]:
    """How far each output tensor may be off, and what share of it is decided.

    Args:
        same: what the reference gives on the inputs of the precise outputs; the expected ones are of inputs that are
            off by a last bit.
    """
    rounds = any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors(inputs))
    found: list[Bounds | int | None] = []
    shares: list[float] = []
    for _, want, wide, at_once in leaves(reals(expected), reals(precise), reals(precise if same is None else same)):
        want, wide, at_once = map(_number, (want, wide, at_once))
        if not isinstance(want, torch.Tensor):
            continue
        if want.is_floating_point():
            own = want
            if want.dtype is torch.float64:
                in_double = same is not None and computes_in_double(wide.double(), at_once)
                own = at_once if in_double else want.float()
            limit = loosened(part, bounds(wide.double(), own, rows_apart=rows_apart), wide)
            found.append(limit)
            shares.append(limit.decided)
        else:
            others = _OWN_DECISIONS * int((want != wide.to(want.dtype)).sum())
            others = max(others, int(rounds) * (want.numel() // _FEW_DECISIONS))
            decides = others <= _LARGEST_UNDECIDED * want.numel()
            found.append(others if decides else None)
            shares.append(float(decides))
    return found, shares


def judged(call: StressCall, actual: Any, settings: EvaluationSettings, dtype: torch.dtype) -> Judged:
    """Compare an output, whose description is that of the expected one, with the exact one."""
    limit = tolerance(settings)
    ratios: list[float] = []
    found = iter(call.bounds)
    for path, want, exact, got in leaves(*map(reals, (call.trial.expected, call.exact, actual))):
        want, exact, got = map(_number, (want, exact, got))
        if not isinstance(want, torch.Tensor):
            if want == exact != got:
                return Judged(Mismatch("values", path), None)
            continue
        bound = next(found)
        if not isinstance(bound, Bounds):
            if bound is not None and int((exact.to(want.dtype) != got.to(exact.device)).sum()) > bound:
                return Judged(Mismatch("values", path), None)
            continue
        atol, rtol = limit.atol, limit.rtol
        if bound.in_double and call.part not in LOOSENED:
            atol, rtol = min(atol, _OF_DOUBLES), min(rtol, _OF_DOUBLES)
        wrong, largest = _compared(exact.double(), got.to(exact.device), atol, rtol, bound, path)
        if wrong is not None:
            return Judged(wrong, None)
        least = max(bound.own, ROUNDING.get(dtype, 0.0) * _largest(exact, bound))
        ratios.append(largest / least if least > 0 else 0.0)
    return Judged(None, None if call.part in LOOSENED else max(ratios, default=None))


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _compared(
    exact: torch.Tensor, actual: torch.Tensor, atol: float, rtol: float, bound: Bounds, path: str
) -> tuple[Mismatch | None, float]:
    """How an output is wrong, or None, and its largest error."""
    limits = [limit.reshape(-1) if limit.numel() > 1 else limit for limit in (bound.scale, bound.noise)]
    largest = total = 0.0
    wrong = lost = 0
    exact, actual = exact.reshape(-1), actual.reshape(-1)
    for start in range(0, len(exact), _CHUNK):
        want, got = exact[start : start + _CHUNK], actual[start : start + _CHUNK].double()
        scale, noise = (limit[start : start + _CHUNK] if limit.dim() else limit for limit in limits)
        known = torch.isfinite(noise) & torch.isfinite(want)
        lost += int((known & ~torch.isfinite(got)).sum())
        error = torch.where(known, (got - want).abs(), 0.0).nan_to_num_(nan=0.0, posinf=0.0)
        wrong += int((error > atol * scale.clamp_max(1.0) + noise + rtol * want.abs()).sum())
        largest = max(largest, float(error.max()))
        total += float(error.sum())
    count = max(1, len(exact))
    if lost:
        return Mismatch("non_finite", path, wrong_share=lost / count), largest
    if wrong:
        return Mismatch("values", path, max_abs=largest, mean_abs=total / count, wrong_share=wrong / count), largest
    return None, largest


def _largest(exact: torch.Tensor, bound: Bounds) -> float:
    known = torch.where(torch.isfinite(bound.noise), exact.abs(), 0.0)
    return float(known.nan_to_num_(posinf=0.0).max()) if exact.numel() else 0.0


def _number(value: Any) -> Any:
    """A tensor in the place of a fraction of Python's."""
    return torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value


def _alike(left: Any, right: Any) -> bool:
    shapes = [[tensor.shape for tensor in tensors(value)] for value in (left, right)]
    return shapes[0] == shapes[1]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor

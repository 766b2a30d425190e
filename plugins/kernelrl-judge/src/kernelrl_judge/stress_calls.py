"""A call of the probe `stress`: the exact output, the reference's own errors against it, and a candidate's.

The exact output is the reference's in double precision. An element of a candidate's may be off by the tolerance in
force and, beyond it, by 64 times the largest error of the reference itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs
import torch

from kernelrl_core.values import EvaluationSettings, Mismatch
from kernelrl_judge.comparing import tolerance
from kernelrl_judge.reference import Reference, TaskError, Trial
from kernelrl_judge.trees import leaves, mapped, reals, tensors

__all__ = ["NO_MEMORY", "Judged", "StressCall", "judged", "stress_call"]

NO_MEMORY = "not enough memory for double precision"
"""Why there is no call just now, though there may be one another time."""
_OWN_ERRORS = 64.0
"""How many times the largest error of the reference an honest kernel may add: another order of sums, Winograd."""
_LARGEST_NOISE = 0.1
"""Of the root mean square of an output: where the reference's errors allow more, nothing can be decided."""
_CHUNK = 1 << 26
_ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_HALVES = (torch.float16, torch.bfloat16)


@attrs.frozen
class StressCall:
    """A call of the probe."""

    part: str
    trial: Trial
    """Inputs, and what the reference makes of them in the task's dtype."""
    exact: Any
    """What it makes of them in double precision."""
    errors: tuple[float, ...]
    """Largest error of the reference, for each floating-point output tensor."""


@attrs.frozen
class Judged:
    """What a call of the probe gave."""

    wrong: Mismatch | None
    error_ratio: float | None
    """The kernel's largest error over the reference's own; None without floating-point outputs."""


def stress_call(
    reference: Reference, exact: Reference, index: int, part: str, inputs: list[Any]
) -> tuple[StressCall | None, str]:
    """A call on inputs, or None and why the reference decides nothing there.

    Args:
        exact: the reference in double precision.
        index: seeds what both draw.
    """
    try:
        expected = reference.expected(inputs, index)
        if not _finite(expected):
            return None, "the reference is not finite on such inputs"
        with _default_dtype(torch.float64):
            precise = exact.expected([mapped(value, _widened) for value in inputs], index)
    except torch.OutOfMemoryError:
        return None, NO_MEMORY
    except TaskError as error:
        return None, f"the reference fails: {error}"[:200]
    if not _alike(expected, precise):
        return None, "the reference gives another structure in double precision"
    errors = []
    for _, want, wide, _ in leaves(reals(expected), reals(precise), reals(precise)):
        if not isinstance(want, torch.Tensor) or not _is_inexact(want):
            if isinstance(want, torch.Tensor) and not torch.equal(want, wide.to(want.dtype)):
                return None, "the reference decides otherwise in double precision"
            continue
        difference = (want.double() - wide).abs()
        if want.dtype in _HALVES:
            # What rounding an element costs is within the relative tolerance.
            difference = (difference - 2 * _ROUNDING[want.dtype] * wide.abs()).clamp_min(0.0)
        own = _largest(difference)
        if not own * _OWN_ERRORS <= _LARGEST_NOISE * _rms(wide):
            return None, "the reference's own errors are too large on such inputs"
        errors.append(own)
    return StressCall(part, Trial(inputs, expected), precise, tuple(errors)), ""


def judged(call: StressCall, actual: Any, settings: EvaluationSettings, dtype: torch.dtype) -> Judged:
    """Compare an output, whose description is that of the expected one, with the exact one."""
    limit = tolerance(settings)
    ratios: list[float] = []
    errors = iter(call.errors)
    for path, want, exact, got in leaves(*map(reals, (call.trial.expected, call.exact, actual))):
        if not isinstance(want, torch.Tensor) or not _is_inexact(want):
            same = torch.equal(want, got.to(want.device)) if isinstance(want, torch.Tensor) else want == got
            if not same:
                return Judged(Mismatch("values", path), None)
            continue
        noise = next(errors)
        wrong, largest = _compared(exact, got.to(exact.device), limit.atol, limit.rtol, _OWN_ERRORS * noise, path)
        if wrong is not None:
            return Judged(wrong, None)
        least = _ROUNDING.get(dtype, 0.0) * _largest(exact)
        ratios.append(largest / max(noise, least) if max(noise, least) > 0 else 0.0)
    return Judged(None, max(ratios, default=None))


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _compared(
    exact: torch.Tensor, actual: torch.Tensor, atol: float, rtol: float, noise: float, path: str
) -> tuple[Mismatch | None, float]:
    """How an output is wrong, or None, and its largest error."""
    absolute = atol * min(1.0, _rms(exact)) + noise
    largest = total = 0.0
    wrong = lost = 0
    for want, got in zip(exact.reshape(-1).split(_CHUNK), actual.reshape(-1).split(_CHUNK), strict=True):
        got = got.double()
        lost += int((~torch.isfinite(got)).sum())
        error = torch.nan_to_num((got - want).abs(), nan=0.0, posinf=0.0)
        wrong += int((error > absolute + rtol * want.abs()).sum())
        largest = max(largest, float(error.max()) if error.numel() else 0.0)
        total += float(error.sum())
    count = max(1, exact.numel())
    if lost:
        return Mismatch("non_finite", path, wrong_share=lost / count), largest
    if wrong:
        return Mismatch("values", path, max_abs=largest, mean_abs=total / count, wrong_share=wrong / count), largest
    return None, largest


def _largest(tensor: torch.Tensor) -> float:
    return float(tensor.abs().max()) if tensor.numel() else 0.0


def _rms(tensor: torch.Tensor) -> float:
    return float(torch.linalg.vector_norm(tensor)) / max(1, tensor.numel()) ** 0.5


def _finite(value: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(reals(value)) if _is_inexact(tensor))


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _alike(left: Any, right: Any) -> bool:
    shapes = [[tensor.shape for tensor in tensors(value)] for value in (left, right)]
    return shapes[0] == shapes[1]


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor

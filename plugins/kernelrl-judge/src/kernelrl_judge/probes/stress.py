"""The probe `stress`: calls on harder inputs of the same domain, after all trials have passed.

A family of harder inputs applies where the reference is well conditioned: all of its outputs are finite, and those in
the task's precision agree with those in double precision within the tolerance, with another last bit in the inputs. The
output of the candidate is then compared with the one in double precision.

The probe `sizes` adds a call on inputs of other sizes.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, Protocol

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.dialogue import CandidateFailed, Dialogue
from kernelrl_judge.peer.process import DeadlinePassed, Runner, RunnerEnded
from kernelrl_judge.probes import messages
from kernelrl_judge.probes.families import FAMILIES, VARIANTS, harder, nudged
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.limits import LIMITS
from kernelrl_judge.protocol.trees import leaves, leaves_bytes, reals, tensors
from kernelrl_judge.task.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.task.precision import ROUNDING, largest_error
from kernelrl_judge.task.reference import FIRST_STRESSED, LEARNED, RESIZED, Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["Judged", "StressCall", "StressTrials", "judged", "stress_calls", "wanted"]

_COPIES = 16
"""Inputs, outputs and state that must fit into free memory, for double precision and temporary tensors."""
_MOST_BYTES_ON_CPU = 256 << 20
_IN_DOUBLE = 2.0**-40
_OF_DOUBLES = 1e-8
"""Tolerance of an output that the reference computes in double precision."""
_HAZARDS = {"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"}
_TO_INTEGERS = {"long", "int", "short", "to", "type", "type_as"}
_IN_SOME_ORDER = {"sort": 1, "argsort": 1, "topk": 2, "max": 1, "min": 1}
"""Functions that promise no order of equal numbers, with the place of their axis."""


@attrs.frozen
class StressCall:
    """One call."""

    family: str
    inputs: list[Any]
    expected: Any
    """Output of the reference in the task's precision, for its structure, shapes and dtypes."""
    exact: Any
    """Output in double precision."""
    limit: Tolerance
    own_error: float


@attrs.frozen
class Judged:
    """Result of a call."""

    wrong: Mismatch | None
    error_ratio: float | None = None
    """The kernel's largest error over the reference's own; None if it is wrong."""


class _Functions(TorchFunctionMode):
    """Notes which functions a reference calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.hazard = False
        """Whether a value out of range ends the context of a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.names.add(name)
        given = args[0] if args else None
        rounds = name in _TO_INTEGERS and isinstance(found, torch.Tensor) and not found.is_floating_point()
        self.hazard |= name in _HAZARDS
        self.hazard |= rounds and isinstance(given, torch.Tensor) and given.is_floating_point()
        return found


class _OtherOrder(TorchFunctionMode):
    """Equal numbers take the opposite order where none is promised."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        place = _IN_SOME_ORDER.get(name)
        if place is None or kwargs.get("stable") or kwargs.get("out") is not None or not args or not args[0].dim():
            return func(*args, **kwargs)
        axis = args[place] if len(args) > place else kwargs.get("dim", None if name in ("max", "min") else -1)
        if not isinstance(axis, int):
            return func(*args, **kwargs)
        found = func(args[0].flip(axis), *args[1:], **kwargs)
        last = args[0].shape[axis] - 1
        return last - found if isinstance(found, torch.Tensor) else type(found)((found[0], last - found[1]))


def wanted(settings: EvaluationSettings) -> bool:
    """Whether the probe is enabled."""
    enabled = {"stress", "sizes"} & set(settings.probes) or settings.min_precision != "none"
    return settings.profile == "strict" and bool(enabled)


def stress_calls(reference: Reference, left: list[str]) -> Iterator[StressCall]:
    """The calls on a task, one after the other: a device has no memory for all.

    Args:
        left: gets the reason for each family that has inputs to change and does not apply.
    """
    reason = _unfit(reference)
    if reason:
        left.append(reason)
        return
    settings = reference.settings
    plans: dict[str, int] = reference.facts.setdefault("stress_variants", {})
    for number, family in enumerate(FAMILIES):
        if family != "rounding" and "stress" not in settings.probes and settings.min_precision == "none":
            continue
        index, why = FIRST_STRESSED - number, ""
        for variant in range(plans.get(family, 0), VARIANTS[family]):
            drawn = reference.inputs(index)
            inputs = harder(drawn, reference.domains, family, variant)
            if inputs is None:
                continue
            made = _call(reference, family, inputs, nudged(inputs, reference.domains, family, variant), index)
            if isinstance(made, StressCall):
                plans[family] = variant
                why = ""
                yield made
                break
            why = made
        if why:
            left.append(f"{family}: {why}")
    if "sizes" in settings.probes:
        resized = reference.resized_inputs(RESIZED)
        if resized is not None and isinstance(made := _call(reference, "sizes", resized, resized, RESIZED), StressCall):
            yield made


def judged(call: StressCall, actual: Any) -> Judged:
    """Compare an output, whose structure is the expected one, with the output in double precision."""
    wrong = compare_values(call.exact, actual, call.limit)
    if wrong is not None:
        return Judged(wrong)
    ratios = []
    for _, exact, own, got in leaves(*map(reals, (call.exact, call.expected, actual))):
        if isinstance(exact, torch.Tensor) and exact.is_floating_point() and exact.numel():
            finite = torch.isfinite(exact)
            largest = float(torch.where(finite, exact, 0.0).abs().max())
            least = max(call.own_error, ROUNDING.get(own.dtype, 0.0) * largest)
            error = float((got.to(exact.device).double() - exact).abs()[finite].max()) if bool(finite.any()) else 0.0
            ratios.append(error / least if least > 0 else 0.0)
    return Judged(None, max(ratios, default=None))


def _unfit(reference: Reference) -> str:
    """Why a task has no calls; empty if it has."""
    facts = reference.facts
    if "stress_bytes" not in facts:
        inputs = reference.inputs(LEARNED)
        functions = _Functions()
        with functions:
            reference.expected(inputs, LEARNED)
        facts["stress_bytes"] = leaves_bytes(inputs) + leaves_bytes(reference.like) + leaves_bytes(reference.state)
        facts["orders"] = bool(functions.names & _IN_SOME_ORDER.keys())
        facts["hazard"] = functions.hazard
    if reference.device == "cuda":
        give_back_spare()
    room = torch.cuda.mem_get_info()[0] if reference.device == "cuda" else _MOST_BYTES_ON_CPU * _COPIES
    if facts["stress_bytes"] * _COPIES > room:
        return "too large for the free memory"
    if facts["hazard"] and reference.device == "cuda":
        return "the reference may assert on the device that its inputs are in a range"
    return ""


def _call(reference: Reference, family: str, inputs: list[Any], near: list[Any], index: int) -> StressCall | str:
    """A call, or the reason why the family does not apply.

    Args:
        near: the inputs with another last bit.
    """
    limit = tolerance(reference.settings)
    share = LIMITS.conditioned_share
    near_limit = attrs.evolve(limit, atol=share * limit.atol, rtol=share * limit.rtol)
    try:
        expected = reference.expected(inputs, index)
        if not _finite(expected):
            return "the reference is not finite"
        exact = reference.exact(inputs, index)
        exact = expected if exact is None else exact
        doubles = [tensor for tensor in tensors(expected) if tensor.dtype is torch.float64]
        own = expected if doubles else reference.expected(near, index)
        if reference.facts.get("orders"):
            with _OtherOrder():
                other = reference.expected(inputs, index)
            if compare_values(expected, other, limit) is not None:
                return "the result depends on the order of equal numbers"
        if not _finite(exact) or compare_values(exact, own, near_limit) is not None:
            return "the reference is not well conditioned"
    except torch.OutOfMemoryError:
        return "not enough memory for double precision"
    except TaskError:
        return "the reference fails"
    pairs = leaves(*map(reals, (exact, own, own)))
    error = max((largest_error(one, other) for _, one, other, _ in pairs if isinstance(one, torch.Tensor)), default=0.0)
    largest = max((float(tensor.abs().max()) for tensor in doubles if tensor.numel()), default=0.0)
    if doubles and len(doubles) == len(tensors(expected)) and error <= _IN_DOUBLE * largest:
        limit = attrs.evolve(limit, atol=min(limit.atol, _OF_DOUBLES), rtol=min(limit.rtol, _OF_DOUBLES))
    rounding = 0.0
    if reference.dtype.itemsize == 2:
        # A reference that computes in single precision does not show how half precision rounds on the way.
        sizes = [
            float(tensor.abs().max()) for tensor in tensors(exact) if tensor.is_floating_point() and tensor.numel()
        ]
        rounding = ROUNDING[reference.dtype] * max(sizes, default=0.0)
    limit = attrs.evolve(limit, own_error=LIMITS.more_errors_in_stress * max(error, rounding))
    return StressCall(family, inputs, expected, exact, limit, error)


def _finite(value: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(reals(value)) if tensor.is_floating_point())


class Calls(Protocol):
    """Makes single calls: `probes.values.Trials`, or `probes.replayed.ReplayTrials`."""

    findings: tuple[Finding, ...]

    def stressed(self, call: StressCall, used: Reference) -> Judged: ...


class StressTrials:
    """Makes the calls of one candidate.

    Args:
        profile: gets the result, and which families do not apply.
    """

    def __init__(
        self, runner: Runner, dialogue: Dialogue, settings: EvaluationSettings, profile: dict[str, Any]
    ) -> None:
        self._runner = runner
        self._dialogue = dialogue
        self._settings = settings
        self._profile = profile
        self.findings: tuple[Finding, ...] = ()

    def run(self, calls: Calls, reference: Reference) -> bool:
        """Make the calls until one fails; returns whether the candidate's process ended in one.

        Args:
            calls: those that passed the trials.
        """
        left: list[str] = []
        ratios: list[float] = []
        family, wrong, ended, count = "", "", False, 0
        until = time.monotonic() + self._settings.timeout_s
        try:
            for call in itertools.takewhile(lambda _: time.monotonic() < until, stress_calls(reference, left)):
                family, count = call.family, count + 1
                self._runner.deadline = time.monotonic() + self._settings.timeout_s
                found = calls.stressed(call, reference)
                if found.wrong is not None:
                    wrong = messages.incorrect(found.wrong)
                    break
                ratios += [found.error_ratio] if found.error_ratio is not None else []
        except CandidateFailed as failed:
            if failed.failure.kind == "memory":
                # The judge has much of it at that time: the candidate may have the device alone.
                if not self._dialogue.alone:
                    raise
                self._profile["stress"] = f"not decided: {family} needs more memory than the reference leaves"
                return False
            wrong, ended = messages.failure(failed.failure), True
        except DeadlinePassed:
            wrong, ended = messages.timeout(self._settings.timeout_s), True
        except RunnerEnded as ending:
            wrong, ended = messages.ended(str(ending))[1], True
        if left:
            self._profile["stress_left"] = "; ".join(left)
        self._profile["stress"] = "failed" if wrong else "passed" if count else "not tried"
        if ratios:
            self._profile["error_ratio"] = round(max(ratios), 2)
        self.findings = tuple(self._concluded(family, wrong, max(ratios, default=None)))
        return ended

    def _concluded(self, family: str, wrong: str, ratio: float | None) -> Iterator[Finding]:
        rule = "sizes" if family == "sizes" else "stress"
        if wrong:
            words = "inputs of other sizes" if family == "sizes" else f"harder inputs, family {family}"
            words += f" ({FAMILIES[family]})" if family in FAMILIES else ""
            if rule in self._settings.probes:
                evidence = f"right in every trial, wrong on {words}: {wrong}"
                yield finding(rule, evidence)
            return
        most = LIMITS.error_ratio.get(self._settings.min_precision)
        if most is not None and self._settings.precision == "fp32" and ratio is not None and ratio > most:
            evidence = (
                f"errors {ratio:.3g} times those of the reference against double precision: more than "
                f"{self._settings.min_precision} explains"
            )
            yield finding("low_precision", evidence)

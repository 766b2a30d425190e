"""The calls of the probe `stress`: harder inputs of the same domain, with their expected outputs.

A family of harder inputs applies where the reference is well conditioned: all of its outputs are finite, and those in
the task's precision agree with those in double precision within the tolerance, with another last bit in the inputs. The
output of the candidate is then compared with the one in double precision. Inputs are within the range of the task where
the task declares their domain, or where they are between the smallest and the largest number that it draws.

The probe `sizes` adds a call on inputs of other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.probes.families import FAMILIES, VARIANTS, harder, is_within_range, nudged, within_range
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.trees import leaves, leaves_bytes, reals, tensors
from kernelrl_judge.task.comparison import Tolerance, compare_values, tolerance
from kernelrl_judge.task.input_indices import FIRST_STRESSED, LEARNED, RESIZED
from kernelrl_judge.task.located import located
from kernelrl_judge.task.open_elements import with_open_elements
from kernelrl_judge.task.precision import ROUNDING, error_shares, largest_error, rounding_unit
from kernelrl_judge.task.reference import Reference, StressFacts
from kernelrl_judge.task.source import TaskError

__all__ = [
    "StressCall",
    "StressResult",
    "compare_stressed",
    "is_enabled",
    "stress_call",
    "stress_calls",
    "stress_families",
]

_COPIES = 16
"""Copies of inputs, outputs and state that must fit into free memory, for double precision and temporary tensors."""
_MAX_BYTES_ON_CPU = 256 << 20
_DOUBLE_ROUNDING = 2.0**-40
"""Relative error below which a reference computes in double precision."""
_DOUBLE_TOLERANCE = 1e-8
"""Tolerance of an output that the reference computes in double precision."""
_HAZARDS = {"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"}
"""Functions that assert on the device that their input is in a range."""
_TO_INTEGERS = {"long", "int", "short", "to", "type", "type_as"}
_AXIS_ARGUMENT = {"sort": 1, "argsort": 1, "topk": 2, "max": 1, "min": 1}
"""Functions that document no order of equal numbers, with the position of their axis argument."""


@attrs.frozen
class StressCall:
    """One call on harder inputs."""

    family: str
    inputs: list[Any]
    expected: Any
    """Output of the reference in the task's precision, for its structure, shapes and dtypes."""
    exact: Any
    """Output in double precision."""
    limit: Tolerance
    own_error: float
    """Largest error of the reference against double precision."""
    is_within_range: bool
    """Whether the inputs are within the range of the task."""
    reference: Reference
    """The reference with the parameters of the call."""
    index: int
    """Index of the random state of the call."""


@attrs.frozen
class StressResult:
    """Result of one call."""

    mismatch: Mismatch | None
    error_ratio: float | None = None
    """The kernel's largest error divided by the reference's own; None if the output is wrong."""


class _CalledFunctions(TorchFunctionMode):
    """Collects the functions that a reference calls."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.is_hazardous = False
        """Whether a value out of range ends the context of a GPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self.names.add(name)
        if name in _HAZARDS or _rounds_to_integers(name, args, found):
            self.is_hazardous = True
        return found


def _rounds_to_integers(name: str, args: Any, found: Any) -> bool:
    """Whether a call converts floating-point numbers to integers, which may be used as indices."""
    if name not in _TO_INTEGERS or not args:
        return False
    is_rounded = isinstance(found, torch.Tensor) and not found.is_floating_point()
    return is_rounded and isinstance(args[0], torch.Tensor) and args[0].is_floating_point()


class _ReversedTies(TorchFunctionMode):
    """Equal numbers take the opposite order in functions that document none."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        axis = _axis(name, args, kwargs)
        if axis is None:
            return func(*args, **kwargs)
        found = func(args[0].flip(axis), *args[1:], **kwargs)
        last = args[0].shape[axis] - 1
        if isinstance(found, torch.Tensor):
            return last - found
        values, indices = found
        return type(found)((values, last - indices))


def _axis(name: str, args: Any, kwargs: Any) -> int | None:
    """Axis along which a call orders equal numbers; None where it documents an order or has no axis."""
    position = _AXIS_ARGUMENT.get(name)
    if position is None or not args or not args[0].dim():
        return None
    if kwargs.get("stable") or kwargs.get("out") is not None:
        return None
    default = None if name in ("max", "min") else -1
    axis = args[position] if len(args) > position else kwargs.get("dim", default)
    return axis if isinstance(axis, int) else None


def is_enabled(settings: EvaluationSettings) -> bool:
    """Whether the probe is enabled."""
    is_requested = {"stress", "sizes"} & set(settings.probes) or settings.min_precision != "none"
    return settings.profile == "strict" and bool(is_requested)


def stress_families(reference: Reference, inapplicable: list[str]) -> list[str]:
    """The families that are tried on a task, and `sizes` if it is enabled.

    Args:
        inapplicable: gets the reason if there are none.
    """
    reason = _why_none(reference, _stress_facts(reference))
    if reason:
        inapplicable.append(reason)
        return []
    settings = reference.settings
    has_all_families = "stress" in settings.probes or settings.min_precision != "none"
    families = [*FAMILIES] if has_all_families else ["rounding"]
    return [*families, "sizes"] if "sizes" in settings.probes else families


def stress_call(
    reference: Reference, family: str, inapplicable: list[str], *, is_in_range: bool = False
) -> StressCall | None:
    """The call of a family; None if it does not apply.

    Args:
        inapplicable: gets the reason if the family has inputs to change and does not apply.
        is_in_range: move its inputs into the range of the task.
    """
    facts = _stress_facts(reference)
    call: StressCall | str
    if family == "sizes":
        call = _resized_call(reference, facts)
    else:
        call = _call_of_family(reference, family, FIRST_STRESSED - [*FAMILIES].index(family), facts, is_in_range)
    if isinstance(call, StressCall):
        return call
    if call and family != "sizes":
        inapplicable.append(f"{family}: {call}")
    return None


def _resized_call(reference: Reference, facts: StressFacts) -> StressCall | str:
    """The call on inputs of other sizes, or the reason why there is none."""
    try:
        inputs = reference.resized_inputs(RESIZED)
    except TaskError:
        return "the inputs of other sizes fail"
    return "" if inputs is None else _call(reference, "sizes", inputs, inputs, RESIZED, facts)


def stress_calls(reference: Reference, inapplicable: list[str]) -> Iterator[StressCall]:
    """The calls on a task, one after the other: a device has no memory for all.

    Args:
        inapplicable: gets the reason for each family that has inputs to change and does not apply.
    """
    for family in stress_families(reference, inapplicable):
        call = stress_call(reference, family, inapplicable)
        if call is not None:
            yield call


def _call_of_family(
    reference: Reference, family: str, index: int, facts: StressFacts, is_in_range: bool
) -> StressCall | str:
    """A call of the first variant under which the reference is well conditioned.

    Returns:
        The call; or the reason why no variant applies, empty if the family changes nothing.
    """
    variants = reference.facts.stress_variants
    reason = ""
    for variant in range(variants.get(family, 0), VARIANTS[family]):
        drawn = reference.inputs(index)
        inputs = harder(drawn, reference.domains, family, variant)
        if inputs is None:
            continue
        if is_in_range:
            inputs = within_range(drawn, inputs, reference.domains)
        near = nudged(inputs, reference.domains, family, variant)
        call = _call(reference, family, inputs, near, index, facts)
        if isinstance(call, StressCall):
            variants[family] = variant
            return attrs.evolve(call, is_within_range=is_within_range(drawn, inputs, reference.domains))
        reason = call
    return reason


def compare_stressed(call: StressCall, actual: Any) -> StressResult:
    """Compare an output, whose structure is the expected one, with the output in double precision."""
    exact = call.exact
    mismatch = compare_values(exact, actual, call.limit)
    if mismatch is not None and mismatch.kind == "values":
        exact = with_open_elements(call.reference, call.inputs, call.index, exact, actual, call.limit)
        mismatch = compare_values(exact, actual, call.limit)
    if mismatch is not None:
        return StressResult(located(mismatch, exact, actual, call.limit, call.inputs))
    ratios = []
    for _, exact, own, got in leaves(*map(reals, (call.exact, call.expected, actual))):
        if isinstance(exact, torch.Tensor) and exact.is_floating_point() and exact.numel():
            finite = torch.isfinite(exact)
            largest = float(torch.where(finite, exact, 0.0).abs().max())
            own_error = max(call.own_error, ROUNDING.get(own.dtype, 0.0) * largest)
            errors = (got.to(exact.device).double() - exact).abs()[finite]
            error = float(errors.max()) if errors.numel() else 0.0
            ratios.append(error / own_error if own_error > 0 else 0.0)
    return StressResult(None, max(ratios, default=None))


def _stress_facts(reference: Reference) -> StressFacts:
    """Size of a task, and properties of the functions that its reference calls."""
    known = reference.facts.stress
    if known is not None:
        return known
    inputs = reference.inputs(LEARNED)
    functions = _CalledFunctions()
    with functions:
        reference.expected(inputs, LEARNED)
    facts = StressFacts(
        bytes=leaves_bytes(inputs) + leaves_bytes(reference.like) + leaves_bytes(reference.state),
        has_unordered_functions=bool(functions.names & _AXIS_ARGUMENT.keys()),
        is_hazardous=functions.is_hazardous,
    )
    reference.facts.stress = facts
    return facts


def _why_none(reference: Reference, facts: StressFacts) -> str:
    """Why a task has no calls; empty if it has."""
    if reference.device == "cuda":
        give_back_spare()
        free_bytes = torch.cuda.mem_get_info()[0]
    else:
        free_bytes = _MAX_BYTES_ON_CPU * _COPIES
    if facts.bytes * _COPIES > free_bytes:
        return "too large for the free memory"
    if facts.is_hazardous and reference.device == "cuda":
        return "the reference may assert on the device that its inputs are in a range"
    return ""


def _call(
    reference: Reference, family: str, inputs: list[Any], near: list[Any], index: int, facts: StressFacts
) -> StressCall | str:
    """A call, or the reason why the family does not apply.

    Args:
        near: the inputs with another last bit.
    """
    limit = tolerance(reference.settings)
    try:
        expected = reference.expected(inputs, index)
        if not _finite(expected):
            return "the reference is not finite"
        exact = reference.exact(inputs, index)
        exact = expected if exact is None else exact
        doubles = [tensor for tensor in tensors(expected) if tensor.dtype is torch.float64]
        own = expected if doubles else reference.expected(near, index)
        if facts.has_unordered_functions:
            with _ReversedTies():
                other = reference.expected(inputs, index)
            if compare_values(expected, other, limit) is not None:
                return "the result depends on the order of equal numbers"
        if not _finite(exact) or compare_values(exact, own, _conditioned_limit(limit)) is not None:
            return "the reference is not well conditioned"
    except torch.OutOfMemoryError:
        return "not enough memory for double precision"
    except TaskError:
        return "the reference fails"
    pairs = leaves(*map(reals, (exact, own, own)))
    error = max((largest_error(one, other) for _, one, other, _ in pairs if isinstance(one, torch.Tensor)), default=0.0)
    if len(doubles) == len(tensors(expected)) and doubles and _is_double_exact(doubles, error):
        atol = min(limit.atol_of(torch.float64), _DOUBLE_TOLERANCE)
        rtol = min(limit.rtol_of(torch.float64), _DOUBLE_TOLERANCE)
        limit = attrs.evolve(limit, atol=atol, rtol=rtol)
    shares = error_shares(exact, own, limit)
    least_share = rounding_unit(reference, expected)
    factor = LIMITS.errors_in_stress / LIMITS.errors
    # A reference that accumulates in single precision does not show the rounding of intermediate values.
    limit = attrs.evolve(limit, own_errors={path: factor * max(share, least_share) for path, share in shares.items()})
    return StressCall(
        family, inputs, expected, exact, limit, error, is_within_range=True, reference=reference, index=index
    )


def _conditioned_limit(limit: Tolerance) -> Tolerance:
    """Tolerance that a well-conditioned reference itself meets."""
    return attrs.evolve(limit, factor=LIMITS.conditioned_share)


def _is_double_exact(doubles: list[torch.Tensor], error: float) -> bool:
    """Whether the error of outputs in double precision is that of double precision."""
    largest = max((float(tensor.abs().max()) for tensor in doubles if tensor.numel()), default=0.0)
    return error <= _DOUBLE_ROUNDING * largest


def _finite(value: Any) -> bool:
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors(reals(value)) if tensor.is_floating_point())

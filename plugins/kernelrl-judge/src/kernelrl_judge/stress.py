"""The probe `stress`: calls on inputs that nobody promised to be small, of one sign, or alike.

A kernel that passed every trial is called again on up to three sets of inputs, with parameters of a larger spread:

- `mixed`: random signs, heavy tails, a factor for each row. A shortcut that inputs of one sign and size allow fails.
- `spiked`: magnitudes over many powers of two, up to 65,536 or 16. Every sum is that of its few largest terms, so
  that errors of a narrow type do not average out, and a formula that overflows does.
- `aligned`: ordinary inputs, all of which a narrow type rounds the same way, so that nothing averages out either. A
  kernel that tells harsh inputs from ordinary ones does not see the difference. For single precision alone.

Shapes, dtypes and integer inputs stay as they are, and so do floating-point inputs with a structure
(`kernelrl_judge.structure`): a kernel may rely on them. What decides is the reference in double precision. An element
may be off by the tolerance in force and, beyond it, by 64 times the largest error of the reference itself. Where the
reference is not finite, or loses its own way, milder inputs are taken, and at last none.

The probe `sizes`, for those who ask for it, adds a call on inputs of other sizes.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Collection, Iterator
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_core.values import EvaluationSettings, Finding, Mismatch, Severity
from kernelrl_judge.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.exchange import leaves_bytes
from kernelrl_judge.overlays import overlaid
from kernelrl_judge.reference import Reference, TaskError, Trial
from kernelrl_judge.structure import structure

__all__ = ["Judged", "StressCall", "concluded", "judged", "prepared", "untested", "wanted"]

_OWN_ERRORS = 64.0
"""How many times the largest error of the reference an honest kernel may add: another order of sums, Winograd."""
_LARGEST_NOISE = 0.1
"""Of the root mean square of an output: where the reference's errors allow more, nothing can be decided."""
_CHUNK = 1 << 26
_COPIES = 14
"""Inputs, outputs and state that must fit in the memory that is free, for double precision and what lies between."""
_MOST_BYTES_ON_CPU = 256 << 20
_PARTS = ("mixed", "spiked")
_ALIGNED = "aligned"
_LOW_BITS, _ROUNDED_DOWN = 0xFFFF, 0x0FFF
"""Of single precision: what bf16, tf32 and fp16 leave out, and what each of them rounds down by most of its error."""
_LARGE, _MODERATE = 65536.0, 16.0
"""Largest spikes. fp16 does not reach as far as the large ones."""
_HALF_ROUNDING = 2.0**-11
_ROUNDING = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_HALVES = (torch.float16, torch.bfloat16)
_MOST_RATIO = {"fp32": 2.0**7, "tf32": 2.0**13, "bf16": 2.0**17}
"""Above what products, sums and pointwise functions in these types showed: up to 2^1 for fp32 (2^5 for convolutions by
Winograd's method), 2^10 to 2^13 for tf32, 2^13 to 2^16 for bf16."""
_MOST_PARAMETERS = 64
_MOST_SPARE = 1 << 30
"""Bytes of a device that stay with the judge while the candidate is called."""
_NO_MEMORY = "not enough memory for double precision"
_UNDECIDED = "the reference decides nothing on such inputs"
_CHECKED = {"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"}
_INDEXING = {
    *("__getitem__", "__setitem__", "index_select", "index_add", "index_add_", "index_put", "index_put_", "take"),
    *(
        "gather",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "embedding",
        "one_hot",
        "nll_loss",
        "cross_entropy",
    ),
}
_CONVERTING = {"to", "type", "long", "int", "short", "type_as"}
_NO_INDICES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)


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


def wanted(settings: EvaluationSettings) -> bool:
    """Whether the probe is to be made."""
    asked = {"stress", "sizes"} & set(settings.probes) or settings.min_precision != "none"
    return settings.profile == "strict" and bool(asked)


def prepared(
    reference: Reference, settings: EvaluationSettings, *, spread: bool
) -> tuple[Reference, list[StressCall], str]:
    """The reference as it is to be constructed, the calls to make, and why there are none or fewer.

    Args:
        spread: whether parameters may change: the candidate takes them from what it is given.
    """
    reason = _unfit(reference)
    if reason:
        return reference, [], reason
    parts = _PARTS if "stress" in settings.probes or settings.min_precision != "none" else ()
    if parts and settings.precision == "fp32" and tolerance(settings).rtol < _HALF_ROUNDING:
        parts = (*parts, _ALIGNED)
    # What a task allows is found out once, whatever the seed.
    plans = reference.facts.setdefault("stress", {})
    reason = _UNDECIDED
    for spreads in (True, False) if spread and _parameters(reference) else (False,):
        keys = [(spreads, part, *_variants(reference, settings, part)) for part in parts]
        if keys and all(plans.get(key) == () for key in keys):
            continue
        try:
            used = _with_spread(reference) if spreads else reference
            exact = used.in_double()
        except Exception as error:  # whatever a module raises that cannot be copied
            reason = f"the reference cannot be copied: {type(error).__name__}"
            continue
        calls: list[StressCall] = []
        for number, key in enumerate(keys):
            for variant in plans.get(key, key[2:]):
                index = Reference.first_timed_input - 2 - number
                inputs = _changed(used.inputs(index), used.facts["structures"], key[1], variant)
                call, reason = _call(used, exact, index, key[1], inputs)
                if call is not None:
                    plans[key] = (variant,)
                    calls.append(call)
                    break
            else:
                if reason != _NO_MEMORY:
                    plans.setdefault(key, ())
        if "sizes" in settings.probes and (calls or not parts or not spreads):
            calls += _resized(used, exact)
        if calls:
            if (
                reference.device == "cuda"
                and torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _MOST_SPARE
            ):
                torch.cuda.empty_cache()
            return used, calls, ""
    return reference, [], reason


def untested(reference: Reference, settings: EvaluationSettings, lacking: Collection[str]) -> tuple[Finding, ...]:
    """What is to be said of a candidate that lacks parameters of the reference, and so cannot be given others.

    Parameters of which another draw leaves the outputs within the tolerance may have been left out.

    Args:
        lacking: names of those that it has not.
    """
    if "stress" not in settings.probes:
        return ()
    if "untested" not in reference.facts:
        with contextlib.suppress(TaskError, torch.OutOfMemoryError):
            reference.facts["untested"] = _without_effect(reference, tolerance(settings))
    names = [name for name in reference.facts.get("untested", ()) if name in lacking]
    if not names:
        return ()
    evidence = f"right in every trial, whether it uses {', '.join(names[:4])} or not, and it has no such parameters"
    return (Finding("stress", Severity.SUSPECT, evidence, checker="judge"),)


def _without_effect(reference: Reference, limit: Tolerance) -> list[str]:
    other = reference.with_other_parameters()
    index = Reference.first_timed_input - 2
    inputs = reference.inputs(index)
    expected = reference.expected(inputs, index)
    twice = attrs.evolve(limit, atol=2 * limit.atol, rtol=2 * limit.rtol)
    found = []
    for name in sorted(_parameters(reference) & reference.state.keys())[:_MOST_PARAMETERS]:
        changed = reference.with_state({**reference.state, name: other.state[name]}).expected(inputs, index)
        if compare_values(expected, changed, twice) is None:
            found.append(name)
    return found


def judged(call: StressCall, actual: Any, settings: EvaluationSettings, dtype: torch.dtype) -> Judged:
    """Compare an output, whose description is that of the expected one, with the exact one."""
    limit = tolerance(settings)
    ratios: list[float] = []
    errors = iter(call.errors)
    for path, want, exact, got in _leaves(*map(_reals, (call.trial.expected, call.exact, actual))):
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


def concluded(
    settings: EvaluationSettings, wrong: tuple[str, str] | None, ratio: float | None
) -> tuple[tuple[Finding, ...], str]:
    """Findings of the probe.

    Args:
        wrong: the part that failed, and how.
        ratio: largest error ratio of the calls.
    """
    if wrong is not None and (rule := "sizes" if wrong[0] == "sizes" else "stress") in settings.probes:
        part, how = wrong
        evidence = f"right in every trial, wrong on {_WORDS[part]}: {how}"
        return (Finding(rule, Severity.SUSPECT, evidence, checker="judge"),), "failed"
    most = _MOST_RATIO.get(settings.min_precision)
    if wrong is None and ratio is not None and most is not None and settings.precision == "fp32" and ratio > most:
        evidence = (
            f"errors {ratio:.3g} times those of the reference against double precision: more than "
            f"{settings.min_precision} explains"
        )
        return (Finding("low_precision", Severity.SUSPECT, evidence, checker="judge"),), "passed"
    return (), "passed" if wrong is None else "failed"


_WORDS = {
    "mixed": "inputs of both signs and of many sizes",
    _ALIGNED: "inputs that narrow types round the same way",
    "spiked": "inputs with a few large values among small ones",
    "sizes": "inputs of other sizes",
}


# --- inputs and parameters --------------------------------------------------------------------------------------------


def _variants(reference: Reference, settings: EvaluationSettings, part: str) -> list[tuple[bool, float]]:
    """Changes of a part, the harshest first: whether signs are drawn, and the largest value."""
    if part == "mixed":
        return [(True, 0.0), (False, 0.0)]
    if part == _ALIGNED:
        return [(False, 0.0)]
    # Winograd's and Fourier's convolutions spread the rounding of a large value over its neighbours, and a tolerance
    # that lets half precision pass lets its range pass.
    large = tolerance(settings).rtol < _HALF_ROUNDING and not reference.facts["convolves"]
    return [(signs, largest) for largest in ((_LARGE, _MODERATE) if large else (_MODERATE,)) for signs in (True, False)]


def _changed(values: list[Any], structures: list[str | None], part: str, variant: tuple[bool, float]) -> list[Any]:
    """Inputs of a part; what has a structure stays, but zeros that stand in fixed places may stand among others."""
    signs, largest = variant
    known = iter(structures)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if next(known) not in (None, "zeros") or not tensor.is_floating_point():
            return tensor
        if part == _ALIGNED:
            return _aligned(tensor)
        if part == "spiked":
            return _spiked(tensor, largest, signed=signs)
        if signs:
            return overlaid(tensor, "mixed")
        return overlaid(overlaid(tensor, "heavy_tailed"), "row_scaled")

    return [_mapped(value, change) for value in values]


def _spiked(tensor: torch.Tensor, largest: float, *, signed: bool) -> torch.Tensor:
    """Times a uniform number to the power of -4: of such a distribution any sum is that of its few largest terms."""
    values = tensor.float() / torch.rand_like(tensor, dtype=torch.float32).clamp_min(2.0**-20).pow(4)
    if signed:
        values = torch.where(torch.rand_like(values).lt(0.5), -values, values)
    within = tuple(range(1, values.dim())) if values.dim() > 1 and values.shape[0] > 1 else tuple(range(values.dim()))
    peaks = values.abs().amax(within, keepdim=True) if within else values.abs()
    factors = torch.exp2(-2 * torch.rand_like(peaks)) * largest
    return torch.where(peaks > 0, values / peaks * factors, values).to(tensor.dtype)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Nearly the same numbers, which lie a little above those of narrower types."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    moved = ((bits & ~_LOW_BITS) | _ROUNDED_DOWN).view(torch.float32)
    return torch.where((tensor == 0) | ~torch.isfinite(tensor), tensor, moved)


def _parameters(reference: Reference) -> set[str]:
    return {name for name, tensor in reference.model.named_parameters() if tensor.is_floating_point()}


def _with_spread(reference: Reference) -> Reference:
    """Parameters that differ from those of the constructor: constants are no longer constant, and small ones count."""
    reference.seed(Reference.first_timed_input - 6)
    state = dict(reference.state)
    for name in sorted(_parameters(reference) & state.keys()):
        tensor = state[name].float()
        fan_in = tensor[0].numel() if tensor.dim() > 1 else 1
        spread = max(float(tensor.std(correction=0)) if tensor.numel() else 0.0, 0.1 if fan_in == 1 else fan_in**-0.5)
        state[name] = torch.add(tensor, torch.randn_like(tensor), alpha=spread).to(state[name].dtype)
    return reference.with_state(state)


# --- the reference ----------------------------------------------------------------------------------------------------


def _unfit(reference: Reference) -> str:
    """Why a task is not put under stress; empty text if it may be."""
    known: str | None = reference.facts.get("stress_unfit")
    if known is not None:
        return known
    first, second = (reference.inputs(Reference.first_timed_input - 2 - number) for number in (0, 1))
    pairs = list(zip(_tensors(first), _tensors(second), strict=False))
    reference.facts["structures"] = [structure(*pair) for pair in pairs]
    found = ""
    size = leaves_bytes(first) + leaves_bytes(reference.like) + leaves_bytes(reference.state)
    if reference.device == "cpu":
        if size > _MOST_BYTES_ON_CPU:
            found = "too large"
    elif size * _COPIES > torch.cuda.mem_get_info()[0]:
        return "too large for the memory that is free"
    if not found:
        watch = _Assertions()
        with contextlib.suppress(TaskError), watch:
            reference.expected(first)
        # On a processor an assertion is an exception like any other.
        if watch.hazard and reference.device == "cuda":
            found = "the reference asserts that its inputs lie in a range"
        reference.facts["convolves"] = watch.convolves
    reference.facts["stress_unfit"] = found
    return found


class _Assertions(TorchFunctionMode):
    """Looks for functions that end a GPU's context when values are out of their range, and for convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self._checked = self._indexes = self._makes_integers = self.convolves = False

    @property
    def hazard(self) -> bool:
        return self._checked or (self._indexes and self._makes_integers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self._checked |= name in _CHECKED
        self._indexes |= name in _INDEXING
        self.convolves |= name.startswith("conv")
        given = args[0] if args else None
        if name in _CONVERTING and isinstance(found, torch.Tensor) and isinstance(given, torch.Tensor):
            self._makes_integers |= given.is_floating_point() and found.dtype not in _NO_INDICES
        return found


def _call(
    reference: Reference, exact: Reference, index: int, part: str, inputs: list[Any]
) -> tuple[StressCall | None, str]:
    try:
        expected = reference.expected(inputs, index)
        if not _finite(expected):
            return None, "the reference is not finite on such inputs"
        with _default_dtype(torch.float64):
            precise = exact.expected([_mapped(value, _widened) for value in inputs], index)
    except torch.OutOfMemoryError:
        return None, _NO_MEMORY
    except TaskError as error:
        return None, f"the reference fails: {error}"[:200]
    if not _alike(expected, precise):
        return None, "the reference gives another structure in double precision"
    errors = []
    for _, want, wide, _ in _leaves(_reals(expected), _reals(precise), _reals(precise)):
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


def _resized(reference: Reference, exact: Reference) -> list[StressCall]:
    """A call on inputs of other sizes, where the task has sizes that may change and decides it."""
    index = Reference.first_timed_input - 3 - len(_PARTS)
    try:
        inputs = reference.resized_inputs(index)
    except TaskError:
        return []
    call = _call(reference, exact, index, "sizes", inputs)[0] if inputs is not None else None
    return [] if call is None else [call]


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


# --- comparison -------------------------------------------------------------------------------------------------------


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
    return all(bool(torch.isfinite(tensor).all()) for tensor in _tensors(_reals(value)) if _is_inexact(tensor))


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point()


def _alike(left: Any, right: Any) -> bool:
    shapes = [[tensor.shape for tensor in _tensors(value)] for value in (left, right)]
    return shapes[0] == shapes[1]


def _reals(value: Any) -> Any:
    """The value with two real numbers in the place of each complex one."""
    return _mapped(value, lambda tensor: torch.view_as_real(tensor) if tensor.is_complex() else tensor)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: _mapped(item, function) for key, item in value.items()}
    return copy.deepcopy(value)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for _, leaf, _, _ in _leaves(value, value, value) if isinstance(leaf, torch.Tensor)]


def _leaves(first: Any, second: Any, third: Any, path: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """Leaves of three values of one structure, with their path."""
    if isinstance(first, list | tuple):
        for index, items in enumerate(zip(first, second, third, strict=True)):
            yield from _leaves(*items, f"{path}[{index}]")
    elif isinstance(first, dict):
        for key, item in first.items():
            yield from _leaves(
                item, second[key], third[str(key)] if str(key) in third else third[key], f"{path}[{key!r}]"
            )
    else:
        yield path, first, second, third

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
from collections.abc import Collection
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_core.values import EvaluationSettings, Finding, Severity
from kernelrl_judge import stress_inputs
from kernelrl_judge.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.exchange import leaves_bytes
from kernelrl_judge.reference import Reference, TaskError
from kernelrl_judge.stress_calls import NO_MEMORY, StressCall, stress_call
from kernelrl_judge.structure import structure
from kernelrl_judge.trees import tensors

__all__ = ["concluded", "prepared", "untested", "wanted"]

_COPIES = 14
"""Inputs, outputs and state that must fit in the memory that is free, for double precision and what lies between."""
_MOST_BYTES_ON_CPU = 256 << 20
_MOST_RATIO = {"fp32": 2.0**7, "tf32": 2.0**13, "bf16": 2.0**17}
"""Above what products, sums and pointwise functions in these types showed: up to 2^1 for fp32 (2^5 for convolutions by
Winograd's method), 2^10 to 2^13 for tf32, 2^13 to 2^16 for bf16."""
_MOST_PARAMETERS = 64
_MOST_SPARE = 1 << 30
"""Bytes of a device that stay with the judge while the candidate is called."""
_WORDS = {
    "mixed": "inputs of both signs and of many sizes",
    "aligned": "inputs that narrow types round the same way",
    "spiked": "inputs with a few large values among small ones",
    "sizes": "inputs of other sizes",
}
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
    parts = stress_inputs.parts(settings)
    # What a task allows is found out once, whatever the seed.
    plans = reference.facts.setdefault("stress", {})
    reason = _UNDECIDED
    for spreads in (True, False) if spread and stress_inputs.parameters(reference) else (False,):
        keys = [(spreads, part, *stress_inputs.variants(reference, settings, part)) for part in parts]
        if keys and all(plans.get(key) == () for key in keys):
            continue
        try:
            used = stress_inputs.with_spread(reference) if spreads else reference
            exact = used.in_double()
        except Exception as error:  # whatever a module raises that cannot be copied
            reason = f"the reference cannot be copied: {type(error).__name__}"
            continue
        calls: list[StressCall] = []
        for number, (key, part) in enumerate(zip(keys, parts, strict=True)):
            for variant in plans.get(key, key[2:]):
                index = Reference.first_timed_input - 2 - number
                inputs = stress_inputs.changed(used.inputs(index), used.facts["structures"], part, variant)
                call, reason = stress_call(used, exact, index, part, inputs)
                if call is not None:
                    plans[key] = (variant,)
                    calls.append(call)
                    break
            else:
                if reason != NO_MEMORY:
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
    for name in sorted(stress_inputs.parameters(reference) & reference.state.keys())[:_MOST_PARAMETERS]:
        changed = reference.with_state({**reference.state, name: other.state[name]}).expected(inputs, index)
        if compare_values(expected, changed, twice) is None:
            found.append(name)
    return found


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


def _unfit(reference: Reference) -> str:
    """Why a task is not put under stress; empty text if it may be."""
    known: str | None = reference.facts.get("stress_unfit")
    if known is not None:
        return known
    first, second = (reference.inputs(Reference.first_timed_input - 2 - number) for number in (0, 1))
    pairs = list(zip(tensors(first), tensors(second), strict=False))
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


def _resized(reference: Reference, exact: Reference) -> list[StressCall]:
    """A call on inputs of other sizes, where the task has sizes that may change and decides it."""
    index = Reference.first_timed_input - 3 - len(stress_inputs.PARTS)
    try:
        inputs = reference.resized_inputs(index)
    except TaskError:
        return []
    call = stress_call(reference, exact, index, "sizes", inputs)[0] if inputs is not None else None
    return [] if call is None else [call]

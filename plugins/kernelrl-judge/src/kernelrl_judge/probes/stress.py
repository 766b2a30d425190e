"""The probe `stress`: calls on inputs that nobody promised to be small, of one sign, or alike.

A kernel that passed every trial is called again on up to five sets of inputs, and on up to four more where the
reference asks for what is no number, refuses harsh inputs, compares, or makes each output of all of an input, with
parameters and running statistics of a larger spread. What a task has no inputs for is left out.

- `mixed`: random signs, heavy tails, a factor for each row. A shortcut that inputs of one sign and size allow fails.
- `spiked`: magnitudes over many powers of two, up to 65,536 or 16. Every sum is that of its few largest terms, so
  that errors of a narrow type do not average out, and a formula that overflows does.
- `aligned`: ordinary inputs, all of which a narrow type rounds the same way, so that nothing averages out either. A
  kernel that tells harsh inputs from ordinary ones does not see the difference. For single precision alone. Whole
  numbers of many values are repeated, to the same end.
- `edges`: large numbers in the first and last slice along each axis, small ones in another, and zeros in one.
- `ranges`: integers that the task draws with `torch.randint`, the ends of their range and duplicates among them, and
  rows of truth values that are all false or all true, where the task draws them one by one.
- `no_numbers`: a few infinities, and a few that are no number, where the reference calls a function that is about them.
- `ends`: the smallest and the largest number that the task draws, where the reference refuses larger ones,
  or is not finite there.
- `coincidences`: numbers that the reference compares others with, halves where it rounds, where a task has any
  (`kernelrl_judge.probes.stress_coincidences`).
- `twins`: rows that inputs have in common, or that differ in little, and equal neighbours in order
  (`kernelrl_judge.probes.stress_twins`).
- `shares`: zeros in rows that sum to one (`kernelrl_judge.probes.stress_shares`).
- `draws`: what a task makes of integers that it draws, where many of them are equal (`stress_draws`).
- `faint`, `zeros`: small and zero everywhere at once, where every output depends on all of an input.
- `loud`: large everywhere at once, where spikes are moderate because the reference convolves.
- `firsts`, `lasts`: truth values that the task draws all false and all true, and single integers at the ends of their
  range.

Shapes and dtypes stay as they are, and so do other integers and inputs with a structure: a
kernel may rely on them. Infinities stay in their places. What decides is the reference in double precision
(`stress_calls`), element by element. Where it decides little, because it is not finite or loses its own
way, milder inputs are taken. A reference that does not run in double precision, or of which no second copy fits into
memory, decides in its own precision, on mild inputs alone.

The probe `sizes`, for those who ask for it, adds a call on inputs of other sizes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Severity
from kernelrl_judge.probes import stress_inputs
from kernelrl_judge.probes.stress_calls import NO_MEMORY, NOT_FINITE, StressCall, stress_call
from kernelrl_judge.probes.stress_draws import RareDraws
from kernelrl_judge.probes.stress_facts import learn, learn_structures
from kernelrl_judge.probes.stress_parameters import SPREADS, spreadable, with_spread
from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparing import Tolerance, compare_values, tolerance
from kernelrl_judge.task.input_indices import FIRST_STRESSED, LEARNED, RESIZED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["concluded", "prepared", "untested", "untried", "wanted"]

_COPIES = 16
"""Inputs, outputs and state that must fit in the memory that is free, for double precision and what lies between."""
_COPIES_IN_OWN_PRECISION = 12
"""Of inputs and outputs alone."""
_MOST_BYTES_ON_CPU = 256 << 20
_ENOUGH = 0.75
"""Share of the elements that inputs have to decide; otherwise milder ones are tried as well."""
_MUCH_MORE = 0.2
"""By how much that share has to be larger for milder inputs to be taken."""
_MOST_RATIO = {"fp32": 2.0**7, "tf32": 2.0**13, "bf16": 2.0**17}
"""Above what products, sums and pointwise functions in these types showed: up to 2^1 for fp32 (2^5 for convolutions by
Winograd's method), 2^10 to 2^13 for tf32, 2^13 to 2^16 for bf16."""
_MOST_PARAMETERS = 64
_WORDS = {
    "mixed": "inputs of both signs and of many sizes",
    "aligned": "inputs that narrow types round the same way",
    "spiked": "inputs with a few large values among small ones",
    "edges": "inputs with large values at their edges, and slices of zeros",
    "ranges": "integers from the ends of their range and repeated ones, or rows of equal truth values",
    "no_numbers": "inputs that are infinite or no number",
    "ends": "the smallest and the largest inputs",
    "coincidences": "numbers that the task compares with, or exact halves",
    "twins": "rows that inputs have in common, or that differ in little, or equal neighbours in order",
    "shares": "zeros in rows that sum to one",
    "draws": "inputs that the task makes where many of the integers that it draws are equal",
    "faint": "inputs that are small everywhere",
    "loud": "inputs that are large everywhere",
    "zeros": "inputs that are zero everywhere",
    "firsts": "truth values that are all false, or single numbers that are the first of their range",
    "lasts": "truth values that are all true, or single numbers that are the last of their range",
    "sizes": "inputs of other sizes",
}
_REFUSED = "the reference fails"
_Prepared = tuple[Reference, list[StressCall], list[str]]


def wanted(settings: EvaluationSettings) -> bool:
    """Whether the probe is to be made."""
    asked = {"stress", "sizes"} & set(settings.probes) or settings.min_precision != "none"
    return settings.profile == "strict" and bool(asked)


def prepared(
    reference: Reference,
    settings: EvaluationSettings,
    *,
    spread: bool,
    alike: bool = False,
    only: Collection[str] | None = None,
) -> tuple[Reference, list[StressCall], str]:
    """The reference as it is to be constructed, the calls to make, and what was left out or is decided in part.

    Args:
        spread: whether parameters may change: the candidate takes them from what it is given.
        alike: whether it takes them by their values, so that equal ones have to stay equal.
        only: the parts to make, if not all.
    """
    facts = reference.facts
    unfit = _unfit(reference)
    if unfit:
        return reference, [], unfit
    made: list[_Prepared] = []
    reasons: list[str] = []
    kinds = (*SPREADS, "") if spread and not facts["large"] and spreadable(reference) else ("",)
    for kind in kinds:
        if (kind and facts.get("spread", kind) != kind) or (not kind and made):
            continue
        try:
            used = with_spread(reference, kind, alike=alike) if kind else reference
        except (TaskError, torch.OutOfMemoryError) as error:
            reasons = [f"the reference cannot be copied: {type(error).__name__}"]
            continue
        calls, reasons = _calls(used, settings, only, kind)
        made += [(used, calls, reasons)] if calls else []
        if kind and sum(call.decided for call in calls) >= _ENOUGH * len(stress_inputs.parts(reference, settings)):
            break
    if not made:
        return reference, [], "; ".join(reasons) or "the task has no inputs to change"
    best = made[-1] if len(made) > 1 and _decided(made[-1]) > _decided(made[0]) + _MUCH_MORE else made[0]
    if len(made) > 1:
        facts["spread"] = SPREADS[made.index(best)]
    if reference.device == "cuda":
        give_back_spare()
    return best[0], best[1], "; ".join(best[2])


def _decided(made: _Prepared) -> float:
    return sum(call.decided for call in made[1])


def _calls(
    reference: Reference, settings: EvaluationSettings, only: Collection[str] | None, kind: str
) -> tuple[list[StressCall], list[str]]:
    """The calls on a reference, and what is not decided."""
    facts = reference.facts
    exact = _exact(reference)
    calls: list[StressCall] = []
    reasons: list[str] = []
    for number, part in enumerate(stress_inputs.PARTS):
        if part == "ends" and only is None and any(_REFUSED in reason or NOT_FINITE in reason for reason in reasons):
            facts["refuses"] = True
        if part not in stress_inputs.parts(reference, settings) or (only is not None and part not in only):
            continue
        index = FIRST_STRESSED - number
        call, exact, reason = _call(reference, exact, settings, part, index, kind)
        calls += [call] if call is not None else []
        reasons += [f"{part}: {reason}"] if reason else []
    if (
        only is None
        and "sizes" in settings.probes
        and (calls or not kind or not stress_inputs.parts(reference, settings))
    ):
        calls += _resized(reference, exact)
    return calls, reasons


def untried(reference: Reference, settings: EvaluationSettings, calls: Sequence[StressCall]) -> str:
    """The parts that a task has inputs for, and no call was made of, and its inputs that no call changes."""
    made = {call.part for call in calls}
    named = [part for part in stress_inputs.parts(reference, settings) if part not in made]
    structures = reference.facts["structures"]
    ranges = reference.facts["ranges"] or [None] * len(structures)
    place = 0
    inputs = calls[0].trial.inputs
    for path, leaf, _, _ in leaves(inputs, inputs, inputs):
        if not isinstance(leaf, torch.Tensor):
            named.append(f"input{path} ({type(leaf).__name__})")
            continue
        known = structures[place]
        stays = ranges[place] is None and reference.facts["shares_along"][place] is None
        stays = stays and reference.facts["at_one_end"][place] is None and place not in reference.facts["draws"]
        if not stress_inputs.is_changed(leaf, known) and known != "counts" and stays:
            named.append(f"input{path} ({known or str(leaf.dtype).removeprefix('torch.')})")
        place += 1
    return ", ".join(named)


def _exact(reference: Reference) -> Reference | None:
    """The reference in double precision; None where it does not run in it."""
    if reference.facts["large"] or reference.facts.get("no_double"):
        return None
    try:
        return reference.in_double()
    except torch.OutOfMemoryError:
        # Nothing that is so of the task: others hold the memory at the moment.
        return None
    except TaskError as error:
        reference.facts["no_double"] = str(error)[:200]
        return None


def _call(
    reference: Reference,
    exact: Reference | None,
    settings: EvaluationSettings,
    part: str,
    index: int,
    kind: str,
) -> tuple[StressCall | None, Reference | None, str]:
    """The call of a part, the reference in double precision if it still runs, and what is not decided."""
    # What a task allows is found out once, whatever the seed.
    plans: dict[Any, tuple[tuple[stress_inputs.Variant, ...], str]] = reference.facts.setdefault("stress", {})
    best: tuple[StressCall, stress_inputs.Variant] | None = None
    reason = ""
    variants = stress_inputs.variants(reference, settings, part)
    key = (part, exact is not None, kind, tuple(variants))
    for variant in plans[key][0] if key in plans else variants:
        if exact is None and not stress_inputs.is_mild(part, variant):
            reason = reason or "the reference does not run in double precision"
            continue
        try:
            call, why = _made(reference, exact, index, part, variant)
        except TaskError as error:
            call, why = None, f"{_REFUSED}: {error}"[:200]
            if exact is not None and _runs(reference, index, part, variant):
                reference.facts["no_double"] = str(error)[:200]
                return _call(reference, None, settings, part, index, kind)
        if why == NO_MEMORY:
            return None, exact, why
        reason = why or reason
        if call is not None and (best is None or call.decided > best[0].decided + _MUCH_MORE):
            best = call, variant
        if best is not None and best[0].decided >= _ENOUGH:
            break
    if key in plans:
        reason = plans[key][1] if best is not None else reason or plans[key][1]
    elif best is not None and best[0].decided < _ENOUGH:
        reason = f"{100 * best[0].decided:.0f} % of the elements are decided"
    elif best is not None:
        reason = ""
    plans.setdefault(key, ((best[1],) if best is not None else (), reason))
    return best[0] if best is not None else None, exact, reason


def _made(
    reference: Reference, exact: Reference | None, index: int, part: str, variant: stress_inputs.Variant
) -> tuple[StressCall | None, str]:
    try:
        inputs = _inputs(reference, index, part, variant)
        near = stress_inputs.nudged(inputs, reference.facts, part, variant)
    except torch.OutOfMemoryError:
        return None, NO_MEMORY
    return stress_call(reference, exact, index, part, inputs, near)


def _inputs(reference: Reference, index: int, part: str, variant: stress_inputs.Variant) -> list[Any]:
    with RareDraws() if part == "draws" else contextlib.nullcontext():
        values = reference.inputs(index)
    return stress_inputs.changed(values, reference.facts, part, variant)


def _runs(reference: Reference, index: int, part: str, variant: stress_inputs.Variant) -> bool:
    """Whether a reference takes inputs in its own precision."""
    inputs = _inputs(reference, index, part, variant)
    with contextlib.suppress(TaskError):
        reference.expected(inputs, index)
        return True
    return False


def untested(reference: Reference, settings: EvaluationSettings, lacking: Collection[str]) -> tuple[Finding, ...]:
    """What is to be said of a candidate that holds nothing like some parameters of the reference, and so cannot be
    given others.

    Parameters of which another draw leaves the outputs within the tolerance, and a wider spread does not, may have been
    left out.

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
        names = _together(reference, tolerance(settings), lacking)
    if not names:
        return ()
    evidence = f"right in every trial, whether it uses {', '.join(names[:4])} or not, and it has no such parameters"
    return (Finding("stress", Severity.SUSPECT, evidence, checker="judge"),)


def _without_effect(reference: Reference, limit: Tolerance) -> list[str]:
    inputs = reference.inputs(LEARNED)
    expected = reference.expected(inputs, LEARNED)
    twice = attrs.evolve(limit, atol=2 * limit.atol, rtol=2 * limit.rtol)
    other, spread = (
        reference.with_other_parameters().state,
        with_spread(reference, SPREADS[0]).state,
    )

    def counts(values: Mapping[str, torch.Tensor]) -> bool:
        changed = reference.with_state({**reference.state, **values}).expected(inputs, LEARNED)
        return compare_values(expected, changed, twice) is not None

    same = {name for name, value in reference.state.items() if torch.equal(value, other[name])}
    names = sorted(spreadable(reference), key=lambda name: (name not in same, name))
    # Of parameters that every draw leaves as they are the first are looked at one by one, the others all at once.
    reference.facts["untested_beyond"] = sorted(same.intersection(names[_MOST_PARAMETERS:]))
    return [
        name
        for name in names[:_MOST_PARAMETERS]
        if (name in same or not counts({name: other[name]})) and counts({name: spread[name]})
    ]


def _together(reference: Reference, limit: Tolerance, lacking: Collection[str]) -> list[str]:
    """Those of many parameters that a candidate lacks, which every draw leaves as they are, where a wider spread of all
    of them changes the outputs."""
    names = [name for name in reference.facts.get("untested_beyond", ()) if name in lacking]
    if not names:
        return []
    inputs = reference.inputs(LEARNED)
    spread = with_spread(reference, SPREADS[0]).state
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        changed = reference.with_state({**reference.state, **{name: spread[name] for name in names}})
        wrong = compare_values(reference.expected(inputs, LEARNED), changed.expected(inputs, LEARNED), limit)
        return names if wrong is not None else []
    return []


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
    facts = reference.facts
    if "structures" not in facts:
        learn_structures(reference)
    passed, held = facts["stress_bytes"]
    if reference.device == "cpu":
        room = _MOST_BYTES_ON_CPU * _COPIES
    else:
        room = torch.cuda.mem_get_info()[0]
    if passed * _COPIES_IN_OWN_PRECISION > room:
        return "too large for the memory that is free"
    facts["large"] = (passed + held) * _COPIES > room
    if "stress_unfit" not in facts:
        learn(reference)
    return str(facts["stress_unfit"])


def _resized(reference: Reference, exact: Reference | None) -> list[StressCall]:
    """A call on inputs of other sizes, where the task has sizes that may change and decides it."""
    try:
        inputs = reference.resized_inputs(RESIZED)
        if inputs is None:
            return []
        near = stress_inputs.nudged(inputs, reference.facts, "sizes")
        call = stress_call(reference, exact, RESIZED, "sizes", inputs, near)[0]
    except TaskError:
        return []
    return [] if call is None or call.decided < _ENOUGH else [call]

"""Feedback by category: outcome, cause, numbers, and one line of guidance."""

from __future__ import annotations

import re

from kernelrl_core.api.feedback import (
    Cause,
    Evaluation,
    Feedback,
    Mismatch,
    Outcome,
    Severity,
    Turn,
    Verdict,
    clean_error,
    describe_mismatch,
)
from kernelrl_plugin_feedback.config import StructuredConfig
from kernelrl_plugin_feedback.wording import (
    CANDIDATE_FILE,
    OUTCOMES,
    describe_dtypes,
    number,
    tests,
)

__all__ = ["Structured"]

_FORMAT_GUIDANCE = {
    "no_code": "Put the whole Python file into the required form.",
    "truncated": "Be shorter: think less and write compact code, so that the reply is complete.",
    "syntax": "Write valid Python; put source code of other languages into strings.",
    "no_model": "Define `class ModelNew` at module level, with the constructor and forward of `Model`.",
}
_GUIDANCE = {
    Outcome.REJECTED: "It is not scored, even if its outputs are correct. Follow the rule above.",
    Outcome.COMPILE_ERROR: "Fix the cause named in the error.",
    Outcome.RUNTIME_ERROR: "Fix the cause named in the error, and compare constructor and forward with `Model`.",
    Outcome.TIMEOUT: "Look for an endless loop or far too much work per call.",
    Outcome.OUT_OF_MEMORY: "Allocate less: no temporaries larger than inputs and outputs.",
    Outcome.HACKED: "Compute the outputs from the inputs of each call.",
}
_ERROR_GUIDANCE = (
    (r"out of resource: shared memory|too much shared data|shared memory.*(?:exceed|limit)",
     "Use less shared memory: smaller blocks or fewer stages."),
    (r"illegal memory access|misaligned address|segmentation fault|out of bounds",
     "A kernel reads or writes outside its buffers: check offsets, masks and the grid."),
    (r"No module named|cannot import name", "Import only installed modules, by their exact names."),
    (r"NameError|is not defined", "Define or import every name before it is used."),
    (r"AttributeError: module '?triton|has no attribute", "Use only functions and attributes that exist."),
    (r"arange|power of (?:2|two)", "Block sizes given to `tl.arange` must be constant powers of two."),
    (r"constexpr", "Values needed at compile time must be `tl.constexpr` arguments."),
    (r"size mismatch|shapes? .*(?:cannot|must|mismatch)|Incompatible|incompatible",
     "Make the shapes of the operands agree."),
    (r"missing \d+ required positional|unexpected keyword|takes \d+ positional",
     "Pass to every call the arguments that its function declares."),
)  # fmt: skip
_MISMATCH_GUIDANCE = {
    "structure": "Return as many outputs as `Model` does, in the same nesting.",
    "shape": "Return the shape that `Model` returns.",
    "dtype": "Return the dtype that `Model` returns.",
    "device": "Return the output on the device of the inputs.",
    "non_finite": "Guard divisions, exponentials and reductions, and mask elements outside the data.",
    "values": "Check the formula, the indexing and the masks at the edges.",
    "memory": "Let outputs share memory exactly where the outputs of `Model` do.",
    "effects": "After the call, inputs and buffers must hold the same values as after a call of `Model`.",
    "inputs": "Write to newly allocated tensors; do not modify the arguments of `forward`.",
}
_CAUSE_GUIDANCE = {
    Cause.UNWRITTEN: "Write every element of the output, and read no memory that nothing wrote.",
    Cause.OUT_OF_BOUNDS: "Mask every load that can leave its tensor.",
    Cause.BOUNDARY: "Check the grid, and the masks and bounds of the last block.",
    Cause.RACE: "Give each thread or program its own data, or order the accesses.",
    Cause.PARAMETERS: "Read all parameters in each call of `forward`.",
    Cause.FACTORS: "Compute products in full precision.",
    Cause.ROUNDING: "Keep intermediate values and outputs in the dtype of the task.",
}
"""Guidance where the cause decides it; elsewhere the kind of the difference does."""


class Structured(Feedback):
    """Formats a turn by its category."""

    def __init__(self, config: StructuredConfig = StructuredConfig()) -> None:  # noqa: B008
        self._limit = config.max_characters

    def format(self, turn: Turn) -> str:
        head = [f"Result: {OUTCOMES[turn.outcome]}."]
        passed = tests(turn)
        if passed:
            head.append(f"Tests passed: {passed}.")
        dtypes = describe_dtypes(turn)
        if dtypes:
            head.append(dtypes)
        tail = [f"Flagged as suspect by the rule {finding}" for finding in _suspicions(turn)]
        cause, guidance = self._cause(turn)
        tail += [guidance] if guidance else []
        room = self._limit - len("\n".join([*head, *tail])) - 2
        shown = clean_error(cause, max_characters=max(room, 0), keep_frames_of=CANDIDATE_FILE) if room > 0 else ""
        return "\n".join(line for line in [*head, shown, *tail] if line)[: self._limit]

    def _cause(self, turn: Turn) -> tuple[str, str]:
        """The text on the cause, and the guidance."""
        match turn.outcome:
            case Outcome.FORMAT_ERROR:
                problem = turn.extraction.problem
                return turn.message or turn.extraction.message, _FORMAT_GUIDANCE.get(problem, "")
            case Outcome.INCORRECT:
                mismatch = turn.evaluation.mismatch if turn.evaluation is not None else None
                if mismatch is None:
                    return turn.message, _MISMATCH_GUIDANCE["values"]
                return turn.message or describe_mismatch(mismatch), _mismatch_guidance(mismatch)
            case Outcome.CORRECT:
                return _speed(turn.evaluation), _speed_guidance(turn)
            case Outcome.HACKED:
                rules = dict.fromkeys(f.rule for f in turn.findings if f.severity is Severity.HACK)
                named = f"Broken rule: {', '.join(rules)}.\n" if rules else ""
                return named + turn.message, _GUIDANCE[Outcome.HACKED]
            case Outcome.REJECTED:
                return f"Broken rule: {turn.message}", _GUIDANCE[Outcome.REJECTED]
            case outcome:
                return turn.message, _error_guidance(turn.message) or _GUIDANCE.get(outcome, "")


def _mismatch_guidance(mismatch: Mismatch) -> str:
    for cause in mismatch.causes:
        if cause.kind in _CAUSE_GUIDANCE:
            return _CAUSE_GUIDANCE[cause.kind]
    return _MISMATCH_GUIDANCE[mismatch.kind]


def _suspicions(turn: Turn) -> list[str]:
    if turn.outcome not in {Outcome.CORRECT, Outcome.INCORRECT}:
        return []
    found = [finding for finding in turn.findings if finding.severity is Severity.SUSPECT]
    return [
        f"{finding.rule}: {clean_error(finding.evidence, max_characters=160, keep_frames_of=CANDIDATE_FILE)}"
        for finding in found[:2]
    ]


def _speed(evaluation: Evaluation | None) -> str:
    if evaluation is not None and evaluation.not_timed:
        reason = clean_error(evaluation.not_timed, max_characters=200, keep_frames_of=CANDIDATE_FILE)
        return f"Speedup: none, {reason}."
    if evaluation is None or evaluation.speedup is None:
        return "Speedup: not measured here."
    interval = ""
    if evaluation.speedup_ci is not None:
        low, high = evaluation.speedup_ci
        interval = f" (95 % interval {number(low)} to {number(high)})"
    text = f"Speedup over the PyTorch baseline: {number(evaluation.speedup)}x{interval}."
    if evaluation.runtime is not None and evaluation.baseline is not None:
        text += (
            f" Median {number(evaluation.runtime.median_us)} us, baseline {number(evaluation.baseline.median_us)} us."
        )
    return text


def _speed_guidance(turn: Turn) -> str:
    if turn.verdict is Verdict.SUSPECT:
        return "Make sure that every call computes all of its outputs from its inputs."
    if turn.speedup is None:
        return "Keep it correct; make it simpler or faster."
    if turn.speedup < 1:
        return "It is slower than the baseline: cut memory traffic, fuse steps, choose better block sizes."
    return "Keep it correct and make it faster still."


def _error_guidance(message: str) -> str:
    """Guidance for a known error; searched from the end, where the cause is."""
    for line in reversed(message[-4000:].splitlines()):
        for pattern, guidance in _ERROR_GUIDANCE:
            if re.search(pattern, line):
                return guidance
    return ""

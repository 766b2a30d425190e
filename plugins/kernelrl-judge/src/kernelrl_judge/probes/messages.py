"""Messages of an evaluation for the model, and its log for people."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.evaluators import Evaluation, Finding, Mismatch, Outcome
from kernelrl_judge.protocol.failures import Failure, Stage
from kernelrl_judge.task.precision import TEN_BITS

__all__ = [
    "compiled_only",
    "ended",
    "failure",
    "finish",
    "hacked",
    "incorrect",
    "incorrect_when_timed",
    "parameters",
    "replay_failed",
    "timeout",
]

_MAX_MESSAGE_CHARACTERS = 2000
_MAX_DETAIL_CHARACTERS = 65_536
_MAX_READ_CHARACTERS = 65_536
"""Of what a runner says nothing looks at more: it may be made to take long."""
# The first process of a namespace cannot be ended by SIGABRT: abort() goes on to a fault.
_OUTSIDE = "an access outside of its memory, or by abort()"
# Which of the first two such an access ends with is a matter of chance.
_SIGNALS = {"SIGSEGV": _OUTSIDE, "SIGBUS": _OUTSIDE, "SIGFPE": "an arithmetic fault"}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PATHS = re.compile(r"[\w./-]+")
_SCRATCH = re.compile(r"/kernelrl-\w+(?=/)")
_HACKS = {
    "replay": "it was looked up, and not computed from its inputs",
    "late_write": "its work was not done when it said so",
    "decoy_kernels": "something else computed it, and the kernels are decoys",
}
_TEN_BITS = (
    ' The error is that of factors rounded to 10 bits, as in TF32 or fp16: use input_precision="ieee" in tl.dot, and '
    "leave torch.backends.cuda.matmul.allow_tf32 off."
)
_PLACES = {
    Stage.LOAD: "while the module was loaded",
    Stage.CONSTRUCT: "in the constructor of ModelNew",
    Stage.FORWARD: "in ModelNew.forward",
    Stage.EXPORT: "while the outputs were read",
}


def failure(found: Failure) -> str:
    """An exception of the candidate, with the place and the cause."""
    return _short(f"Raised {_PLACES[found.stage]}:\n{_clean(found.text)}")


def timeout(limit_s: float) -> str:
    return f"Not finished within {limit_s:g} s."


KILLED = "The process was ended by SIGKILL."


def ended(how: str) -> tuple[Outcome, str]:
    """Outcome and message for a process that ended by itself."""
    word, _, number = how.partition(" ")
    if word == "signal" and number.isdigit():
        name = signal.Signals(int(number)).name if int(number) in signal.valid_signals() else f"signal {number}"
        if name in ("SIGXCPU",):
            return Outcome.TIMEOUT, "The limit of processor time was reached."
        meaning = _SIGNALS.get(name, name)
        return Outcome.RUNTIME_ERROR, f"The process was ended by {meaning}."
    if word == "crowd":
        return Outcome.RUNTIME_ERROR, "It started more processes than are allowed."
    if word == "memory":
        return Outcome.OUT_OF_MEMORY, "Its processes together took more memory than is allowed."
    if word == "exit":
        return Outcome.RUNTIME_ERROR, f"The process ended itself with status {number} before it returned a result."
    return Outcome.RUNTIME_ERROR, "The process ended before it returned a result."


def replay_failed(code: int) -> str:
    """Of kernels that fail while their recording is replayed."""
    meaning = {700: "an illegal memory access", 702: "a kernel that did not end", 716: "a misaligned address"}
    return f"The kernels failed on fresh inputs: {meaning.get(code, f'CUDA error {code}')}."


def hacked(finding: Finding) -> str:
    """What the judge saw that is no mistake."""
    return f"{finding.evidence[:1].upper()}{finding.evidence[1:]}: {_HACKS[finding.rule]}."


def incorrect(wrong: Mismatch, *, other_parameters: bool = False) -> str:
    """How an output differs."""
    said = _difference(wrong)
    return f"{said} This call used other parameters than the next ones." if other_parameters else said


def _difference(wrong: Mismatch) -> str:
    where = f"Output {wrong.output}" if wrong.output else "The output"
    match wrong.kind:
        case "values":
            numbers = ""
            if wrong.max_abs is not None and wrong.mean_abs is not None:
                numbers = f" Largest difference {wrong.max_abs:.4g}, mean difference {wrong.mean_abs:.4g}"
                if wrong.wrong_share is not None:
                    numbers += f", {100 * wrong.wrong_share:.1f} % of the elements outside the tolerance"
                numbers += "."
            return f"{where} has wrong values.{numbers}{_TEN_BITS if wrong.expected == TEN_BITS else ''}"
        case "non_finite":
            return f"{where} is infinite or NaN where it must not be, or finite where it must be."
        case "inputs":
            named = f"Input {wrong.output}" if wrong.output else "An input"
            return f"{named} was changed by the call. The reference leaves its inputs as they are."
        case "effects":
            where = f"{wrong.output[:1].upper()}{wrong.output[1:]}"
            return f"{where} does not hold after the call what the reference leaves there."
        case _:
            return f"{where} has the wrong {wrong.kind}: expected {wrong.expected}, got {wrong.actual}."


def incorrect_when_timed(wrong: Mismatch, changed: Sequence[str] = ()) -> str:
    """How an output of a timed call differs, though the untimed ones were right.

    Args:
        changed: names of what calls of the reference change in its state.
    """
    if changed:
        return (
            "Several calls in a row gave another result than those of the reference: each call must begin with what "
            f"the call before it left in {', '.join(changed[:4])}, and return memory of its own. {incorrect(wrong)}"
        )
    return (
        "Several calls in a row gave another result than calls made one by one: each call must return memory of its "
        f"own and depend on nothing that an earlier one left. {incorrect(wrong)}"
    )


def compiled_only(checked: str, why: str) -> str:
    """What there is to say when nothing was run."""
    return f"{checked[:1].upper()}{checked[1:]}. Not run: {why}."


def parameters(note: Any, expected: int) -> str:
    """How the candidate's parameters came to equal the reference's."""
    if not expected:
        return "the reference has none"
    matched = note.get("matched", 0) if isinstance(note, dict) else 0
    how = "values and shape" if isinstance(note, dict) and note.get("renamed") else "name and shape"
    if matched == expected:
        return f"matched by {how}"
    return f"{matched} of {expected} matched by {how}; the others as drawn in order of construction"


def finish(
    evaluation: Evaluation, *, printed: str, seconds: Mapping[str, float], provenance: Mapping[str, Any]
) -> Evaluation:
    """Add the log, the times and the provenance."""
    detail = evaluation.detail or evaluation.message
    if printed.strip():
        detail = f"{detail}\n--- printed by the candidate ---\n{printed}"
    return attrs.evolve(
        evaluation,
        detail=_middle_out(detail, _MAX_DETAIL_CHARACTERS),
        seconds=dict(seconds),
        provenance=dict(provenance),
    )


def _clean(text: str) -> str:
    plain = _ANSI.sub("", _middle_out(text, _MAX_READ_CHARACTERS))
    return _PATHS.sub(_without_scratch, plain).replace("\x00", "")


def _without_scratch(found: re.Match[str]) -> str:
    """A path, or something like one, without the temporary directory that it lies in."""
    path = found[0]
    first = path.find("/")
    ends = [place.end() for place in _SCRATCH.finditer(path, first + 1)]
    return path[:first] + path[ends[-1] + 1 :] if ends else path


def _short(text: str) -> str:
    return _middle_out(text, _MAX_MESSAGE_CHARACTERS)


def _middle_out(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    # Compilers put the place first and the cause last; what can be spared stands between.
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"

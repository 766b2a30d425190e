"""Texts of an evaluation: messages for the model, and the log for people."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

import attrs

from kernelrl_core.api.evaluators import Finding, Mismatch
from kernelrl_judge.protocol.failures import Failure, Phase
from kernelrl_judge.task.precision import TEN_BITS

__all__ = [
    "RANDOM_REFERENCE",
    "compiled_only",
    "ended",
    "failure",
    "hacked",
    "incorrect",
    "incorrect_when_timed",
    "log",
    "replay_failed",
    "timeout",
    "without_cause",
]

_MAX_MESSAGE_CHARACTERS = 2000
_MAX_LACKING = 4
_MAX_DETAIL_CHARACTERS = 65_536
_MAX_READ_CHARACTERS = 65_536
"""Longest text of a runner that patterns are searched in: a candidate could make the search take long."""
# SIGABRT cannot end the first process of a namespace: abort() continues to a fault.
_OUTSIDE = "an access outside of its memory, or by abort()"
# Such an access ends with either of the first two signals.
_SIGNALS = {"SIGSEGV": _OUTSIDE, "SIGBUS": _OUTSIDE, "SIGFPE": "an arithmetic fault"}
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PATHS = re.compile(r"[\w./-]+")
_SCRATCH = re.compile(r"/kernelrl-\w+(?=/)")
_HACKS = {
    "replay": "it was stored, and not computed from its inputs",
    "late_write": "its work was not complete when the call returned",
    "decoy_kernels": "something else computed it, and the kernels are decoys",
}
_TEN_BITS = (
    ' The error is that of factors rounded to 10 bits, as in TF32 or fp16: use input_precision="ieee" in tl.dot, and '
    "leave torch.backends.cuda.matmul.allow_tf32 off."
)
_PRODUCTS = re.compile(r"dot|mma|matmul|gemm|conv|einsum|linear|bmm|\bmm\b|@ |half|fp16|float16|tf32", re.IGNORECASE)
"""What a source needs whose factors may have ten bits."""
_OTHER_PARAMETERS = (
    " Another call was right, with other parameters: values that are computed from parameters must be computed anew "
    "when the parameters change."
)
RANDOM_REFERENCE = (
    "The reference draws random numbers, as dropout in training mode does: its own output differs for another random "
    "state, so no kernel can match it. Set the model to eval() in the task, or pass the random numbers as an input."
)
_PLACES = {
    Phase.LOAD: "while the module was loaded",
    Phase.CONSTRUCT: "in the constructor of ModelNew",
    Phase.FORWARD: "in ModelNew.forward",
    Phase.EXPORT: "while the outputs were read",
    Phase.OUTSIDE: "outside of ModelNew, in the process that runs it",
}


def failure(found: Failure) -> str:
    """An exception of the candidate, with the place and the cause."""
    return _short_message(f"Raised {_PLACES[found.phase]}:\n{_clean(found.text)}")


def timeout(limit_s: float) -> str:
    """A candidate that reached its time limit."""
    return f"Not finished within {limit_s:g} s."


def ended(how: str) -> str:
    """A process that ended without a failure message; see `RunnerEnded.how`."""
    word, _, number = how.partition(" ")
    if word == "signal" and number.isdigit():
        name = signal.Signals(int(number)).name if int(number) in signal.valid_signals() else f"signal {number}"
        if name == "SIGXCPU":
            return "The limit of CPU time was reached."
        return f"The process was ended by {_SIGNALS.get(name, name)}."
    match word:
        case "crowd":
            return "It started more processes than are allowed."
        case "memory":
            return "Its processes together took more memory than is allowed."
        case "exit":
            return f"The process ended itself with status {number} before it returned a result."
    return "The process ended before it returned a result."


def replay_failed(code: int) -> str:
    """Kernels that fail while their recording is replayed.

    Args:
        code: `CUresult`.
    """
    meaning = {700: "an illegal memory access", 702: "a kernel that did not end", 716: "a misaligned address"}
    return f"The kernels failed on fresh inputs: {meaning.get(code, f'CUDA error {code}')}."


def hacked(finding: Finding) -> str:
    """Evidence of a hack, with its meaning."""
    return f"{finding.evidence[:1].upper()}{finding.evidence[1:]}: {_HACKS[finding.rule]}."


def without_cause(wrong: Mismatch, source: str) -> Mismatch:
    """The difference without the explanation by factors of ten bits, where a source multiplies no matrices."""
    if wrong.expected != TEN_BITS or _PRODUCTS.search(source):
        return wrong
    return attrs.evolve(wrong, expected="")


def incorrect(wrong: Mismatch, *, lacking: Sequence[str] = (), follows_other_parameters: bool = False) -> str:
    """Difference of an output.

    Args:
        lacking: parameters of the reference for which the candidate has no tensor.
        follows_other_parameters: a call before it was right, with other parameters.
    """
    text = _difference(wrong)
    if lacking:
        names = ", ".join(lacking[:_MAX_LACKING]) + (", …" if len(lacking) > _MAX_LACKING else "")
        text += f" ModelNew has no parameter or buffer for {names} of Model, which has other values in every call."
    return text + _OTHER_PARAMETERS if follows_other_parameters else text


def _difference(wrong: Mismatch) -> str:
    where = f"Output {wrong.output}" if wrong.output else "The output"
    match wrong.kind:
        case "values":
            cause = _TEN_BITS if wrong.expected == TEN_BITS else ""
            return f"{where} has wrong values.{_sizes(wrong)}{cause}"
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


def _sizes(wrong: Mismatch) -> str:
    """Sizes of the differences of wrong values."""
    if wrong.max_abs is None or wrong.mean_abs is None:
        return ""
    text = f" Largest difference {wrong.max_abs:.4g}, mean difference {wrong.mean_abs:.4g}"
    if wrong.wrong_share is not None:
        text += f", {100 * wrong.wrong_share:.1f} % of the elements outside the tolerance"
    return f"{text}."


def incorrect_when_timed(wrong: Mismatch, changed: Sequence[str] = ()) -> str:
    """Difference of an output of a timed call, although the outputs of the trials were right.

    Args:
        changed: names of the state that calls of the reference change.
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
    """A candidate that was compiled and not executed.

    Args:
        checked: names of the compiled kernels, or why nothing was checked.
        why: why it was not executed.
    """
    return f"{checked[:1].upper()}{checked[1:]}. Not run: {why}."


def log(detail: str, printed: str) -> str:
    """The complete log: details of the outcome, and the output that the candidate printed."""
    text = detail
    if printed.strip():
        text = f"{text}\n--- printed by the candidate ---\n{printed}"
    return _shortened(text, _MAX_DETAIL_CHARACTERS)


def _clean(text: str) -> str:
    plain = _ANSI.sub("", _shortened(text, _MAX_READ_CHARACTERS))
    return _PATHS.sub(_without_scratch, plain).replace("\x00", "")


def _without_scratch(found: re.Match[str]) -> str:
    """A path, or a similar text, without the temporary directory that contains it."""
    path = found[0]
    first = path.find("/")
    ends = [place.end() for place in _SCRATCH.finditer(path, first + 1)]
    return path[:first] + path[ends[-1] + 1 :] if ends else path


def _short_message(text: str) -> str:
    return _shortened(text, _MAX_MESSAGE_CHARACTERS)


def _shortened(text: str, limit: int) -> str:
    """The text without its middle, where it is longer than the limit."""
    if len(text) <= limit:
        return text
    half = limit // 2
    # Compilers print the place first and the cause last.
    return f"{text[:half]}\n… {len(text) - 2 * half} characters omitted …\n{text[-half:]}"

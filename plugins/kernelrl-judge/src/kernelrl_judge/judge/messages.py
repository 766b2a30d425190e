"""Texts of an evaluation: messages for the model, and the log for people."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

import attrs

from kernelrl_core.api.evaluators import Cause, Finding, Mismatch, describe_mismatch
from kernelrl_judge.probes.trials import TrialFailure
from kernelrl_judge.protocol.failures import Failure, Phase

__all__ = [
    "compiled_only",
    "ended",
    "explained",
    "failure",
    "hacked",
    "incorrect_when_timed",
    "log",
    "replay_failed",
    "timeout",
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
_PRODUCTS = re.compile(r"dot|mma|matmul|gemm|conv|einsum|linear|bmm|\bmm\b|@ |half|fp16|float16|tf32", re.IGNORECASE)
"""What a source needs whose factors may have ten bits."""
_OTHER_PARAMETERS = (
    "another call was right, with other parameters: values that are computed from parameters must be computed anew "
    "when the parameters change."
)
_RANDOM_REFERENCE = (
    "the reference draws random numbers, as dropout in training mode does: its own output differs for another random "
    "state, so no kernel can match it. Set the model to eval() in the task, or pass the random numbers as an input."
)
_PLACES = {
    Phase.LOAD: "while the module was loaded",
    Phase.CONSTRUCT: "in the constructor of ModelNew",
    Phase.FORWARD: "in ModelNew.forward",
    Phase.EXPORT: "while the outputs were read",
    Phase.OUTSIDE: "outside of ModelNew, in the process that runs it",
}


def failure(found: Failure, text: str = "") -> str:
    """An exception of the candidate, with the place and the cause.

    Args:
        text: its text in lines of the candidate's file; empty: the text as reported.
    """
    return _short_message(f"Raised {_PLACES[found.phase]}:\n{_clean(text or found.text)}")


def timeout(limit_s: float, *, passed_trials: bool = False) -> str:
    """A candidate that reached its time limit.

    Args:
        passed_trials: whether only timed calls, or those that show own kernels, were left.
    """
    text = f"Not finished within {limit_s:g} s"
    return f"{text}: all trials passed, and the calls after them did not end." if passed_trials else f"{text}."


def ended(how: str, line: str = "") -> str:
    """A process that ended without a failure message; see `RunnerEnded.how`.

    Args:
        line: of the candidate's file, in which a fault ended it; empty if it is not known.
    """
    word, _, number = how.partition(" ")
    if word == "signal" and number.isdigit():
        name = signal.Signals(int(number)).name if int(number) in signal.valid_signals() else f"signal {number}"
        if name == "SIGXCPU":
            return "The limit of CPU time was reached."
        place = f"\n{line}" if line else ""
        return f"The process was ended by {_SIGNALS.get(name, name)}.{place}"
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


def explained(wrong: Mismatch, source: str, failure: TrialFailure, *, has_random_reference: bool) -> Mismatch:
    """The difference with the causes that other calls, the parameters and the source show.

    Args:
        source: of the candidate. Without products it has no factors of ten bits.
        failure: the trial of the difference.
        has_random_reference: whether the outputs of the reference depend on random numbers.
    """
    if not _PRODUCTS.search(source):
        others = tuple(cause for cause in wrong.causes if cause.kind is not Cause.FACTORS)
        wrong = attrs.evolve(wrong, causes=others)
    if failure.follows_other_parameters:
        wrong = wrong.with_cause(Cause.PARAMETERS, _OTHER_PARAMETERS)
    if failure.lacking:
        names = ", ".join(failure.lacking[:_MAX_LACKING]) + (", …" if len(failure.lacking) > _MAX_LACKING else "")
        evidence = f"ModelNew has no parameter or buffer for {names} of Model, which has other values in every call."
        wrong = wrong.with_cause(Cause.PARAMETERS, evidence)
    return wrong.with_cause(Cause.RANDOM, _RANDOM_REFERENCE) if has_random_reference else wrong


def incorrect_when_timed(wrong: Mismatch, changed: Sequence[str] = ()) -> str:
    """Difference of an output of a timed call, although the outputs of the trials were right.

    Args:
        changed: names of the state that calls of the reference change.
    """
    if changed:
        statement = (
            "Several calls in a row gave another result than those of the reference: each call must begin with what "
            f"the call before it left in {', '.join(changed[:4])}, and return memory of its own."
        )
    else:
        statement = (
            "A call among several in a row is wrong, although the calls before were right: ModelNew is wrong for some "
            "inputs, or a call depends on what an earlier one left or returns its memory."
        )
    return f"{statement}\n{describe_mismatch(wrong)}"


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

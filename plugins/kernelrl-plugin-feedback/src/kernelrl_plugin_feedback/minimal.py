"""One short line of constant phrases, which a small model learns like words."""

from __future__ import annotations

import re

from kernelrl_core.api.feedback import Feedback, Mismatch, Outcome, Turn
from kernelrl_plugin_feedback.wording import OUTCOMES, tests

__all__ = ["Minimal"]

_EXCEPTION = re.compile(r"\b([A-Z]\w{0,60}(?:Error|Exception))\b")
_MAX_STATEMENT = 200
"""Maximum length of a rule's statement."""
_PROBLEMS = {"no_code": "no code", "truncated": "cut off", "syntax": "syntax", "no_model": "no ModelNew"}


class Minimal(Feedback):
    """Outcome, trials passed, and the class of the mistake."""

    def format(self, turn: Turn) -> str:
        passed = tests(turn)
        result = OUTCOMES[turn.outcome] + (f" {passed}" if passed else "")
        kind = self._kind(turn)
        return f"{result}: {kind}." if kind else f"{result}."

    def _kind(self, turn: Turn) -> str:
        match turn.outcome:
            case Outcome.FORMAT_ERROR:
                return _PROBLEMS.get(turn.extraction.problem, "")
            case Outcome.INCORRECT:
                mismatch = turn.evaluation.mismatch if turn.evaluation is not None else None
                return "" if mismatch is None else _mistake(mismatch)
            case Outcome.COMPILE_ERROR | Outcome.RUNTIME_ERROR:
                names = _EXCEPTION.findall(turn.message[-4000:])
                return names[-1] if names else ""
            case Outcome.REJECTED:
                return turn.message.strip().partition("\n")[0][:_MAX_STATEMENT].rstrip(".")
            case Outcome.CORRECT if turn.speedup is not None:
                return f"speedup {turn.speedup:.1f}"
            case _:
                return ""


def _mistake(mismatch: Mismatch) -> str:
    if mismatch.kind == "non_finite":
        return "nan or infinity"
    if mismatch.kind == "inputs":
        return "input changed"
    if mismatch.kind != "values":
        return f"wrong {mismatch.kind}"
    share = mismatch.wrong_share
    if share is None:
        return "wrong values"
    for least, word in ((0.98, "all"), (0.6, "most"), (0.4, "half"), (0.1, "some")):
        if share >= least:
            return f"{word} values wrong"
    return "few values wrong"

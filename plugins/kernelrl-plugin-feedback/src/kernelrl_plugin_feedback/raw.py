"""Unfiltered feedback: the outcome and the whole message."""

from __future__ import annotations

from kernelrl_core.api.feedback import Feedback, Turn
from kernelrl_plugin_feedback.config import RawConfig
from kernelrl_plugin_feedback.wording import OUTCOMES, describe_dtypes, tests

__all__ = ["Raw"]


class Raw(Feedback):
    """Outcome, trials passed, and the message, which is shortened only above a limit."""

    def __init__(self, config: RawConfig = RawConfig()) -> None:  # noqa: B008
        self._limit = config.max_characters

    def format(self, turn: Turn) -> str:
        passed = tests(turn)
        lines = [f"Result: {OUTCOMES[turn.outcome]}."]
        if passed:
            lines.append(f"Tests passed: {passed}.")
        dtypes = describe_dtypes(turn)
        if dtypes:
            lines.append(dtypes)
        if turn.correct and turn.speedup is not None:
            lines.append(f"Speedup: {turn.speedup:.3g}x.")
        head = "\n".join(lines)
        message = turn.message.strip()
        room = self._limit - len(head) - 1
        if len(message) > room:
            mark = f"\n[… {len(message)} characters in all …]\n"
            half = (room - len(mark)) // 2
            message = message[:half] + mark + message[-half:]
        return f"{head}\n{message}".rstrip()

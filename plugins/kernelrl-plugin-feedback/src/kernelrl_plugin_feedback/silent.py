"""No feedback: a later turn then contains only the repeated prompt."""

from __future__ import annotations

from kernelrl_core.api.feedback import Feedback, Turn

__all__ = ["Silent"]


class Silent(Feedback):
    """Returns an empty text for every turn."""

    def format(self, turn: Turn) -> str:
        return ""

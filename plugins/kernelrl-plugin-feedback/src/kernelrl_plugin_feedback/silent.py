"""No feedback: what is left of a later turn when the model is only asked again."""

from __future__ import annotations

from kernelrl_core.api.feedback import Feedback, Turn

__all__ = ["Silent"]


class Silent(Feedback):
    """Says nothing."""

    def format(self, turn: Turn) -> str:
        return ""

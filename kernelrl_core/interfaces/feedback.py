"""Feedback formatters: text about a turn for the prompt of the next turn.

The core inserts the text into the next prompt as it is.

`kernelrl plugins new feedback NAME` writes a sample plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import attrs

from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.types.turns import Turn

__all__ = ["Feedback", "FeedbackConfig"]


@attrs.frozen
class FeedbackConfig(ComponentConfig):
    """Options of a feedback formatter."""


class Feedback(ABC):
    """Describes a turn to the model. Pure."""

    @abstractmethod
    def format(self, turn: Turn) -> str:
        """Text for the prompt of the next turn. Never called for a turn with outcome `infra_error`."""

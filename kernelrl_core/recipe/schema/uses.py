"""Component blocks with keys of the core beside their options."""

from __future__ import annotations

from typing import Literal

import attrs

from kernelrl_core.plugins.use import Use
from kernelrl_core.types.numbers import PositiveInt

__all__ = ["RetrieverUse", "RewardUse"]


@attrs.frozen
class RewardUse(Use):
    """A reward component and its weight."""

    weight: float = 1.0
    """Factor of the component's value in the score."""


@attrs.frozen
class RetrieverUse(Use):
    """A retriever, and the number of examples it adds to a prompt."""

    k: PositiveInt = PositiveInt(3)
    """Examples per prompt."""
    turns: Literal["first", "all"] = "first"
    """Turns whose prompt shows the examples: the first, or all."""
    guard: Literal["task", "held_out"] = "task"
    """Leaks that are excluded: `task` excludes solutions of the prompt's task and of all tasks of `eval.split`;
    `held_out` lets a training task see its own solution."""

    def shows_at(self, turn: int) -> bool:
        """Whether the prompt of a turn, from 0, shows the examples."""
        return turn == 0 or self.turns == "all"

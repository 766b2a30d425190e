"""Options of the starter tasks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.api.config import Fraction, NonNegativeInt
from kernelrl_core.api.tasks import TaskConfig

__all__ = ["Size", "StarterOptions"]

Size = Literal["small", "large", "huge"]


@attrs.frozen
class StarterOptions(TaskConfig):
    """Which of the starter tasks take part, and how their answers are weighted."""

    levels: tuple[Literal[1, 2, 3], ...] = (1, 2, 3)
    """Levels that take part: 1 elementwise and reductions; 2 normalisation, softmax, matmul, scans; 3 fusions."""
    names: tuple[str, ...] = ()
    """Names of the tasks that take part, such as `softmax`; empty: all of the levels, in both splits."""
    practice: NonNegativeInt = NonNegativeInt(400)
    """Made-up tasks of the split `practice`, at most 9999: they widen the warm start and are never trained on or
    evaluated."""
    size: Size = "small"
    """`small`: a few hundred elements, for Triton's interpreter; `large`: some 400,000, on which run times on a CPU
    mean something; `huge`: some 17 million, for run times on a GPU, with fast, middling and slow Triton answers."""
    right_share: Fraction = Fraction(0.4)
    """Share of the right answers among the answers to a task; the flawed ones have the rest."""

    def problems(self) -> Iterable[str]:
        """What contradicts itself."""
        if not self.levels:
            yield "levels: name at least one of 1, 2, 3"

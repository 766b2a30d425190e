"""The result of a search, complete or so far."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import attrs

from kernelrl_core.monitoring.costs import Spent
from kernelrl_core.types import Turn, Verdict

__all__ = ["Found", "Reason", "best_of"]

Reason = Literal["rounds", "budget", "evaluations", "target", "no_progress", "untimed"]


@attrs.frozen
class Found:
    """A search so far, or its result."""

    turns: tuple[Turn, ...]
    """All attempts in order, that of the given kernel first."""
    best: Turn | None
    """See `best_of`. At the end of a search, with the times of an evaluation of its own, which selected nothing: the
    fastest of many measurements is fast by luck, too."""
    selected_speedup: float | None
    """Speedup for which the best kernel was selected, where another evaluation measured it again; else None."""
    stopped_by: Reason | None
    """None: it continues."""
    rounds: int
    """Complete rounds."""
    untimed: str
    """Reason why this machine cannot time the kernels; empty if it can."""
    evaluations: int
    spent: Spent
    usd: float | None
    """Cost in US dollars; None without a price."""
    seconds: float
    """Wall time of this process."""


def best_of(turns: Iterable[Turn]) -> Turn | None:
    """The best correct kernel with verdict clean: by speedup, then score, then order; None if there is none."""
    clean = [turn for turn in turns if turn.correct and turn.verdict is Verdict.CLEAN and turn.verified is not False]
    return max(clean, key=lambda turn: (turn.speedup or 0.0, turn.score.total, -turn.id.turn), default=None)

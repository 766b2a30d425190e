"""Events of a run for its monitoring. An event is published when the rows that it contains are on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

from kernelrl_core.types import Turn

__all__ = ["Event", "PhaseStarted", "StepFinished", "Subscriber", "TurnFinished"]


@attrs.frozen
class PhaseStarted:
    """The rollout of a step or of a held-out split has started."""

    name: str
    turns: int
    """Maximum number of turns."""
    purpose: Literal["train", "eval"] | None = None
    """Purpose of its turns; None: all turns until the next phase are its own."""
    step: int | None = None
    """Step of its turns, as in their ids; None: any."""

    def has(self, turn: Turn, purpose: str) -> bool:
        """Whether a turn with a purpose belongs to this phase."""
        return self.purpose in (None, purpose) and self.step in (None, turn.id.step)


@attrs.frozen
class TurnFinished:
    """A turn is complete."""

    turn: Turn
    purpose: Literal["train", "eval"]
    row: Mapping[str, Any]
    """Its row of `samples.jsonl`, or of the held-out evaluation."""


@attrs.frozen
class StepFinished:
    """A step is finished: its metrics row is on disk."""

    metrics: Mapping[str, Any]
    """Its row of `metrics.jsonl`."""
    credits: Sequence[Mapping[str, Any]]
    """Its rows of `credits.jsonl`."""
    n_steps: int
    """Steps of the run."""


Event = PhaseStarted | TurnFinished | StepFinished


class Subscriber(Protocol):
    """Receives the events of a run. `handle` must not raise and must not block."""

    def handle(self, event: Event) -> None: ...

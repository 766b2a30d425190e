"""What monitoring is told of a run. Each event is published after the rows that it speaks of are on disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import attrs

from kernelrl_core.types import Turn

__all__ = ["EvaluationFinished", "Event", "PhaseStarted", "StepFinished", "Subscriber", "TurnFinished"]


@attrs.frozen
class PhaseStarted:
    """A rollout of a step or of a held-out split began."""

    name: str
    turns: int
    """Turns it has at most."""


@attrs.frozen
class TurnFinished:
    """A turn is over."""

    turn: Turn
    purpose: Literal["train", "eval"]
    row: Mapping[str, Any]
    """Its row of `samples.jsonl`, or of the held-out evaluation."""


@attrs.frozen
class StepFinished:
    """A step is committed."""

    metrics: Mapping[str, Any]
    """Its row of `metrics.jsonl`."""
    credits: Sequence[Mapping[str, Any]]
    """Its rows of `credits.jsonl`."""
    n_steps: int
    """Steps of the run."""


@attrs.frozen
class EvaluationFinished:
    """A held-out evaluation is over."""

    step: int
    """Updates before it."""
    metrics: Mapping[str, Any]
    """Its results, under `eval/`."""


Event = PhaseStarted | TurnFinished | StepFinished | EvaluationFinished


class Subscriber(Protocol):
    """Shows, logs or forwards a run. Must not raise and must not block."""

    def handle(self, event: Event) -> None: ...

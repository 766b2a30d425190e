"""What is learnt from: turns, episodes and groups."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kernelrl_core.types.evaluations import Evaluation
from kernelrl_core.types.outcomes import Finding, Outcome, Verdict
from kernelrl_core.types.replies import Candidate, Extraction, Prompt, Reply
from kernelrl_core.types.tasks import Task

__all__ = ["Episode", "Group", "SampleId", "Score", "Turn"]


@attrs.frozen(order=True)
class SampleId:
    """Place of a turn in a run. Their order is the order in which training consumes samples."""

    step: int
    task_index: int
    """Index of the task within the step's batch."""
    attempt: int
    turn: int

    def __str__(self) -> str:
        return f"{self.step}.{self.task_index}.{self.attempt}.{self.turn}"


@attrs.frozen
class Score:
    """Reward of one turn."""

    total: float
    """Sum of the weighted parts: the very number that is trained on."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """Weighted contribution of each reward component, by its name in the recipe."""


@attrs.frozen
class Turn:
    """One prompt, its reply and everything concluded about it: one training sample."""

    id: SampleId
    task: Task
    prompt: Prompt
    reply: Reply
    extraction: Extraction
    evaluation: Evaluation | None
    """None when nothing was run, and when what was seen as it ran broke a rule (`format_error`, `rejected`)."""
    findings: tuple[Finding, ...]
    """Findings of all checkers and of the judge."""
    outcome: Outcome
    verdict: Verdict
    message: str
    """Why the turn ended as it did, for the model and for `check`."""
    score: Score = Score(0.0)
    feedback: str = ""
    """What the next turn's prompt says about this one."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time by stage: `sample`, `check`, `evaluate`, …"""
    verified: bool | None = None
    """Whether a second judgement, which pays nothing, found it correct as well; None where there was none."""
    staleness: int = 0
    """Updates between the weights that sampled the reply and the update that trains on it, substeps apart; 0 unless
    steps are sampled ahead."""
    lost_at: str = ""
    """Where the infrastructure lost it: `sampling`, `evaluation` or `plugin`; empty where it was not lost."""

    @property
    def candidate(self) -> Candidate | None:
        return self.extraction.candidate

    @property
    def correct(self) -> bool:
        return self.outcome is Outcome.CORRECT

    @property
    def speedup(self) -> float | None:
        return self.evaluation.speedup if self.evaluation is not None and self.correct else None

    @property
    def masked(self) -> bool:
        """Whether training must leave this turn out."""
        return self.outcome is Outcome.INFRA_ERROR


@attrs.frozen
class Episode:
    """The turns of one attempt at a task, in order."""

    turns: tuple[Turn, ...]


@attrs.frozen
class Group:
    """All attempts at one task in one step."""

    task: Task
    episodes: tuple[Episode, ...]

"""Turns, episodes and groups."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kernelrl_core.types.evaluations import Evaluation
from kernelrl_core.types.outcomes import Finding, Outcome, Verdict
from kernelrl_core.types.replies import Candidate, Extraction, Prompt, Reply
from kernelrl_core.types.tasks import ExcludedExample, ShownExample, Task

__all__ = ["Episode", "Group", "SampleId", "Score", "Turn"]


@attrs.frozen(order=True)
class SampleId:
    """Position of a turn in a run. Training consumes samples in the order of their ids."""

    step: int
    """Number of the step, from 0."""
    task_index: int
    """Index of the task within the step, from 0."""
    attempt: int
    """Index of the episode within the group, from 0."""
    turn: int
    """Index of the turn within the episode, from 0."""

    def __str__(self) -> str:
        return f"{self.step}.{self.task_index}.{self.attempt}.{self.turn}"


@attrs.frozen
class Score:
    """Score of one turn."""

    total: float
    """Sum of the weighted components; returns are computed from it."""
    parts: Mapping[str, float] = attrs.field(factory=dict)
    """Weighted contribution of each reward component, by its name in the recipe."""


@attrs.frozen
class Turn:
    """One prompt, its reply, its evaluation and its score."""

    id: SampleId
    """Position of the turn in the run."""
    task: Task
    """Task of the episode."""
    prompt: Prompt
    """Prompt of the turn."""
    reply: Reply
    """Reply of the policy."""
    extraction: Extraction
    """Candidate extracted from the reply, or the reason why there is none."""
    evaluation: Evaluation | None
    """Evaluation of the candidate; None for the outcomes `format_error`, `rejected` and `infra_error`."""
    findings: tuple[Finding, ...]
    """Findings of all checkers and of the judge."""
    outcome: Outcome
    """Outcome of the turn."""
    verdict: Verdict
    """Worst severity of `findings`."""
    message: str
    """Reason for the outcome, for the model and for `kernelrl check`."""
    score: Score = Score(0.0)
    """Score; 0 while reward components compute it."""
    feedback: str = ""
    """Text about this turn for the prompt of the next turn; empty while the formatter computes it."""
    seconds: Mapping[str, float] = attrs.field(factory=dict)
    """Wall time per phase: `sample`, `check`, `evaluate`, …"""
    verified: bool | None = None
    """Result of the verification; None if there was none. It does not change the score."""
    staleness: int = 0
    """Number of updates between the weights that sampled the reply and the update that trains on it, not counting
    substeps; 0 unless steps are sampled ahead."""
    lost_at: str = ""
    """Boundary of the infrastructure error: `sampling`, `evaluation` or `plugin`; empty if there was none."""
    examples: tuple[ShownExample, ...] = ()
    """Retrieved examples in the prompt, best first; empty if the recipe retrieves none for this turn."""
    excluded_examples: tuple[ExcludedExample, ...] = ()
    """Examples that the retriever found and the prompt does not show, with the reasons."""
    parents: tuple[int, ...] = ()
    """In a search: numbers of the turns that the reply continues from, the last one being the kernel to improve. Empty
    for a first turn, and outside of a search, where a turn continues from all turns before it."""

    @property
    def candidate(self) -> Candidate | None:
        """Short for `extraction.candidate`."""
        return self.extraction.candidate

    @property
    def correct(self) -> bool:
        """True if the outcome is `correct`."""
        return self.outcome is Outcome.CORRECT

    @property
    def speedup(self) -> float | None:
        """Speedup of a correct turn; None if the turn is not correct or was not timed."""
        return self.evaluation.speedup if self.evaluation is not None and self.correct else None

    @property
    def masked(self) -> bool:
        """True if training must exclude the turn: the outcome is `infra_error`."""
        return self.outcome is Outcome.INFRA_ERROR


@attrs.frozen
class Episode:
    """The consecutive turns of one try at a task."""

    turns: tuple[Turn, ...]
    """Turns in order."""


@attrs.frozen
class Group:
    """All episodes of one task in one step."""

    task: Task
    """The task."""
    episodes: tuple[Episode, ...]
    """Episodes in the order of their index."""

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The turns of all episodes, one episode after the other."""
        return tuple(turn for episode in self.episodes for turn in episode.turns)

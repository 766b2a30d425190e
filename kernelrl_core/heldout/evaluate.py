"""What `kernelrl eval` does: a policy as it is, on a split, with a report."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.heldout.scoreboard import best_turn, scoreboard
from kernelrl_core.heldout.split import rollout_split
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.events import TurnFinished
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.session import open_session
from kernelrl_core.runs.checkpoints import load_checkpoint
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.journal import Journal, read_rows
from kernelrl_core.runs.provenance import provenance
from kernelrl_core.runs.rows import sample_id, sample_row, turn_from_row, why_lost
from kernelrl_core.types import Episode, Outcome, SampleId, Task, Turn, sha256_text
from kernelrl_core.types.serialization import dumps, to_json

__all__ = ["EvalJob", "evaluate_job"]


@attrs.frozen
class EvalJob:
    """What is to be measured."""

    recipe: Recipe
    registry: Registry
    label: str
    """The policy in words."""
    run: RunDir | None = None
    resolved: Mapping[str, Any] = attrs.field(factory=dict)
    """The recipe as plain data."""
    checkpoint: Mapping[str, Any] | None = None
    """Row of the checkpoint; None is the untrained policy."""

    def with_settings(self, *, split: str | None, samples: int | None, temperature: float | None) -> EvalJob:
        """The job with what the command line says in place of the recipe's."""
        given: dict[str, Any] = {"split": split, "samples": samples, "temperature": temperature}
        settings = attrs.evolve(self.recipe.eval, **{key: value for key, value in given.items() if value is not None})
        return attrs.evolve(self, recipe=attrs.evolve(self.recipe, eval=settings))


async def evaluate_job(job: EvalJob, partial: Path | None = None) -> dict[str, Any]:
    """The report: flat results, then `provenance`, then `rows` with one row per turn.

    Args:
        partial: file in which turns are kept until the report is complete; an interrupted job goes on from there.

    Raises:
        UsageError, MissingPrerequisite: something of the recipe cannot be had.
        KernelRLError: every sample was lost to the infrastructure.
    """
    console = Console()
    recipe, settings = job.recipe, job.recipe.eval
    secret = job.run.secret() if job.run is not None else os.urandom(32)
    update = int(job.checkpoint["loop"]["next_step"]) if job.checkpoint is not None else 0
    recorder = _PartialRecorder(job, partial, console)

    def finished(tasks: Sequence[Task]) -> dict[SampleId, Turn]:
        return {sample_id(row): turn_from_row(row, tasks[row["task_index"]]) for row in recorder.kept}

    try:
        async with open_session(recipe, job.registry, secret=secret, run_dir=None, say=console.say) as session:
            if job.checkpoint is not None and job.run is not None:
                label = session.policy_label
                await load_checkpoint(session.policy, job.run.checkpoints, job.checkpoint, component=label)
            session.sampler.updates = update
            groups = await rollout_split(session, recorder, console.handle, update=update, finished=finished)
    finally:
        console.close()
        recorder.close()
    episodes = [episode for group in groups for episode in group.episodes]
    turns = [turn for episode in episodes for turn in episode.turns]
    _say_lost(episodes, console)
    return {
        "policy": job.label,
        "split": settings.split,
        "samples": settings.samples,
        "temperature": recipe.sampling.temperature if settings.temperature is None else settings.temperature,
        **scoreboard(groups, settings),
        "provenance": provenance(recipe, job.registry),
        "rows": [sample_row(turn) for turn in turns],
    }


def _say_lost(episodes: Sequence[Episode], console: Console) -> None:
    """Say how many attempts the infrastructure lost, and why.

    Raises:
        KernelRLError: all of them.
    """
    lost = sum(best_turn(episode) is None for episode in episodes)
    if not lost:
        return
    message, fix = why_lost(episodes)
    if lost == len(episodes):
        raise KernelRLError(f"every sample was lost to the infrastructure; the last error: {message}", fix=fix)
    reason = message.strip().partition("\n")[0]
    console.show(f"{lost} of {len(episodes)} samples were lost to the infrastructure; the last error: {reason}")


class _PartialRecorder:
    """Keeps the turns of an unfinished evaluation in a file; see `rollout.episode.Recorder`."""

    def __init__(self, job: EvalJob, path: Path | None, console: Console) -> None:
        self.kept: list[dict[str, Any]] = []
        """Rows of the turns that an earlier call finished."""
        self._console, self._journal, self._writing = console, None, asyncio.Lock()
        if path is not None:
            self._journal = self._open(job, path)

    def require_budget(self) -> None: ...

    async def begin(self, purpose: str, where: SampleId) -> None: ...

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        row = sample_row(turn)
        if self._journal is not None:
            async with self._writing:
                await asyncio.to_thread(self._journal.append, [row])
        self._console.handle(TurnFinished(turn, purpose, row))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _open(self, job: EvalJob, path: Path) -> Journal:
        what = {"label": job.label, "recipe": job.resolved, "eval": to_json(job.recipe.eval)}
        head = {"job": sha256_text(dumps(what))}
        rows = list(read_rows(path))
        if rows[:1] != [head]:  # of another job
            path.unlink(missing_ok=True)
            rows = []
        journal = Journal(path)
        if not rows:
            journal.append([head])
        self.kept = [row for row in rows[1:] if row["outcome"] != Outcome.INFRA_ERROR]
        return journal

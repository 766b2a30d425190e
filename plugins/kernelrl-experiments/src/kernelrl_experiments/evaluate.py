"""The held-out evaluation of `kernelrl eval`: measures a policy on a split and returns a report."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from kernelrl_core.environment.environment import Environment
from kernelrl_core.errors import KernelRLError
from kernelrl_core.heldout.scoreboard import best_turn, scoreboard
from kernelrl_core.heldout.split import rollout_split
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.events import PhaseStarted, TurnFinished
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.rollout.episode import Recorder
from kernelrl_core.rollout.groups import session_rollout
from kernelrl_core.rollout.session import Session, open_session
from kernelrl_core.runs.journal import Journal, read_rows
from kernelrl_core.runs.provenance import provenance, retriever_identity
from kernelrl_core.runs.row_shapes import SAMPLE, fault
from kernelrl_core.runs.rows import sample_id, sample_row, turn_from_row, why_lost
from kernelrl_core.storage import cache_directory, disk_error, write_atomically
from kernelrl_core.types import Episode, Group, Outcome, SampleId, Task, Turn, sha256_text
from kernelrl_core.types.serialization import dumps, to_json
from kernelrl_experiments.breakdown import breakdown
from kernelrl_experiments.eval_jobs import EvalJob
from kernelrl_experiments.existing_kernels import ExistingKernels, evaluate_existing

__all__ = ["evaluate_job", "evaluate_jobs", "run_job", "sample_task"]

T = TypeVar("T")


def evaluate_jobs(jobs: Sequence[EvalJob], output: Path | None, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """The reports of evaluations, one after the other; see `evaluate_job`.

    Args:
        output: JSON file for the reports. Finished turns are kept beside it until it is written; the same call
            continues from them after an interruption.
        say: prints a line about the progress.

    Raises:
        UsageError, MissingPrerequisite, KernelRLError: as `evaluate_job`; or the file cannot be written.
    """
    reports: list[dict[str, Any]] = []
    partials: list[Path] = []
    for job in jobs:
        say(f"evaluating {job.label} on split {job.recipe.eval.split!r}")
        if output is not None:
            partials.append(_partial(output, job, several=len(jobs) > 1))
        reports.append(run_job(evaluate_job(job, partials[-1] if partials else None)))
    if output is not None:
        _write(output, reports)
        for partial in partials:
            partial.unlink()
        say(f"written: {output}")
    return reports


def run_job(work: Coroutine[Any, Any, T]) -> T:
    """The result of a job, or its first error."""
    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _partial(output: Path, job: EvalJob, *, several: bool) -> Path:
    """The file of the finished turns of an evaluation, from which the same command continues."""
    part = "" if not several else f".{job.checkpoint['name'] if job.checkpoint is not None else 'base'}"
    return output.with_name(f"{output.name}{part}.partial")


def _write(output: Path, reports: Sequence[dict[str, Any]]) -> None:
    document = reports[0] if len(reports) == 1 else {"evaluations": reports}
    try:
        write_atomically(output, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise disk_error(output, error) from error


async def evaluate_job(job: EvalJob, partial: Path | None = None) -> dict[str, Any]:
    """Run the evaluation and return its report: scoreboard, breakdown, `recipe`, `provenance`, and `rows` with one row
    per turn.

    Args:
        partial: JSONL file of finished turns, written during the evaluation. An equal job continues from it; the file
            of another job is replaced.

    Raises:
        UsageError, MissingPrerequisite: a component of the recipe cannot be used.
        KernelRLError: all episodes were lost to infrastructure errors, or a plugin failed.
    """
    console = Console()
    recipe, settings = job.recipe, job.recipe.eval
    recorder = _PartialRecorder(job, partial, console, retriever_identity(recipe, job.registry))

    def finished(tasks: Sequence[Task]) -> dict[SampleId, Turn]:
        return {sample_id(row): turn_from_row(row, tasks[row["task_index"]]) for row in recorder.kept}

    try:
        if job.existing is not None:
            groups = await _existing_groups(job, job.existing, recorder, console, finished(job.existing.tasks))
        else:
            async with _opened(job, console) as session:
                update = session.sampler.updates
                groups = await rollout_split(session, recorder, console.handle, update=update, finished=finished)
    finally:
        recorder.close()
    episodes = [episode for group in groups for episode in group.episodes]
    turns = [turn for episode in episodes for turn in episode.turns]
    _say_lost(episodes, console)
    return {
        "policy": job.label,
        "split": settings.split,
        "samples": settings.samples,
        **({"search": settings.search.method} if settings.search is not None else {}),
        "temperature": _temperature(job),
        **scoreboard(groups, settings),
        **breakdown(groups, settings),
        "recipe": dict(job.resolved),
        "provenance": provenance(recipe, job.registry),
        "rows": [sample_row(turn) for turn in turns],
    }


def _temperature(job: EvalJob) -> float | None:
    """Sampling temperature; None for existing kernels."""
    if job.existing is not None:
        return None
    given = job.recipe.eval.temperature
    return job.recipe.sampling.temperature if given is None else given


async def _existing_groups(
    job: EvalJob,
    existing: ExistingKernels,
    recorder: Recorder,
    console: Console,
    finished: Mapping[SampleId, Turn],
) -> list[Group]:
    """The evaluated kernels of a job without a policy."""
    secret = _secret(job, console)
    reporting = asyncio.create_task(console.keep_reporting())
    try:
        environment = Environment.from_recipe(
            job.recipe, registry=job.registry, secret=secret, cache_dir=cache_directory()
        )
        try:
            await environment.start()
            console.handle(PhaseStarted(f"evaluating {job.label}", len(existing.kernels)))
            return await evaluate_existing(existing, environment, recorder, finished)
        finally:
            await environment.aclose()
    finally:
        reporting.cancel()
        console.close()


async def sample_task(job: EvalJob, task: Task, episodes: int) -> list[Episode]:
    """Sample and evaluate episodes of one task, as in a held-out evaluation. Equal calls sample equal replies, if the
    policy is deterministic.

    Raises:
        UsageError, MissingPrerequisite: a component of the recipe cannot be used.
        KernelRLError: all episodes were lost to infrastructure errors, or a plugin failed.
    """
    console = Console()
    recorder = _PartialRecorder(job, None, console, {})
    async with _opened(job, console) as session:
        console.handle(PhaseStarted(f"sampling {task.id}", episodes * job.recipe.episode.turns))
        rollout = session_rollout(
            session, [task], episodes, recorder, purpose="eval", step=session.sampler.updates, finished={}
        )
        async with rollout:
            found = [episode async for group in rollout for episode in group.episodes]
    _say_lost(found, console)
    return found


@asynccontextmanager
async def _opened(job: EvalJob, console: Console) -> AsyncIterator[Session]:
    """The session of a job with its checkpoint loaded, and the progress on the console."""
    recipe = job.recipe
    secret = _secret(job, console)
    reporting = asyncio.create_task(console.keep_reporting())
    try:
        async with open_session(
            recipe,
            job.registry,
            secret=secret,
            run_dir=None,
            say=console.say,
            origin=job.run.origin() if job.run is not None else None,
            checkpoint=(job.run.checkpoints, job.checkpoint) if job.run is not None and job.checkpoint else None,
        ) as session:
            if job.checkpoint is not None and job.run is not None:
                if retriever_identity(recipe, job.registry) == job.run.provenance().get("retriever", {}):
                    session.environment.restore(job.checkpoint["loop"])
                session.sampler.updates = job.steps
            yield session
    finally:
        reporting.cancel()
        console.close()


def _secret(job: EvalJob, console: Console) -> bytes:
    """The key of the hidden input seeds: that of the run, unless a copy of the run lacks it."""
    if job.run is not None:
        try:
            return job.run.secret()
        except KernelRLError as error:
            console.say(f"{error.message}; the inputs are other random ones than in the run")
    return os.urandom(32)


def _say_lost(episodes: Sequence[Episode], console: Console) -> None:
    """Print how many episodes were lost to infrastructure errors, and the last error.

    Raises:
        KernelRLError: all episodes were lost.
    """
    lost = sum(best_turn(episode) is None for episode in episodes)
    if not lost:
        return
    message, fix = why_lost(episodes)
    if lost == len(episodes):
        raise KernelRLError(
            f"every episode was lost to infrastructure errors; last error: {message}", fix=fix, see="infrastructure"
        )
    reason = message.strip().partition("\n")[0]
    console.show(f"{lost} of {len(episodes)} episodes were lost to infrastructure errors; last error: {reason}")


class _PartialRecorder:
    """A `rollout.episode.Recorder` that writes finished turns to a file, so that the evaluation can be continued."""

    def __init__(self, job: EvalJob, path: Path | None, console: Console, retriever: Mapping[str, Any]) -> None:
        self.kept: list[dict[str, Any]] = []
        """Rows of turns finished by an earlier, interrupted call."""
        self._console, self._journal, self._writing = console, None, asyncio.Lock()
        self._unwritten: list[dict[str, Any]] = []
        if path is not None:
            self._journal = self._open(job, path, retriever)

    def require_budget(self) -> None: ...

    async def begin(self, purpose: str, where: SampleId) -> None: ...

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        row = sample_row(turn)
        if self._journal is not None:
            self._unwritten.append(row)
            async with self._writing:
                # One wait for the disk is for all rows that came meanwhile. If it fails, the evaluation ends.
                if rows := self._unwritten:
                    self._unwritten = []
                    await asyncio.to_thread(self._journal.append, rows)
        self._console.handle(TurnFinished(turn, purpose, row))

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def _open(self, job: EvalJob, path: Path, retriever: Mapping[str, Any]) -> Journal:
        identity = {"label": job.label, "recipe": job.resolved, "eval": to_json(job.recipe.eval)}
        identity |= {"retriever": retriever} if retriever else {}
        identity |= {"kernels": job.existing.sha256} if job.existing is not None else {}
        head = {"job": sha256_text(dumps(identity))}
        rows = list(read_rows(path))
        if rows[:1] != [head]:  # file of another job
            path.unlink(missing_ok=True)
            rows = []
        journal = Journal(path)
        if not rows:
            journal.append([head])
        self.kept = [row for row in rows[1:] if not fault(row, SAMPLE) and row["outcome"] != Outcome.INFRA_ERROR]
        return journal

"""The training loop. Single-turn training is multi-turn training with one turn.

    rollout ─> credit ─> update ─> held-out evaluation ─> checkpoint files ─> checkpoint row ─> metrics row ─> events

The checkpoint row is the commit point. After a crash, a step without this row is repeated with the journalled turns and
equal results; a step with it is completed by writing its metrics row.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.algorithms.credit import Credit, assign_credit, planned_samples
from kernelrl_core.heldout.split import rollout_split, split_metrics
from kernelrl_core.interfaces.advantages import AdvantageFunction, Returns
from kernelrl_core.monitoring.events import PhaseStarted, StepFinished
from kernelrl_core.monitoring.metrics import step_metrics, time_metrics
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.plugins.boundary import plugin_boundary, wrong_return
from kernelrl_core.rollout.groups import Rollout, RolloutQueue, session_rollout
from kernelrl_core.rollout.session import Session
from kernelrl_core.runs.checkpoints import (
    best_checkpoint,
    checkpoint_name,
    load_checkpoint,
    prune_checkpoints,
    save_checkpoint,
    sweep,
)
from kernelrl_core.runs.directory import RunDir, now
from kernelrl_core.runs.rows import require_turns
from kernelrl_core.runs.run_journal import RunJournal, RunRecorder
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.training.learner import Learner
from kernelrl_core.types import Group

__all__ = ["TrainingRun", "train"]

_log = logging.getLogger(__name__)


@attrs.frozen
class TrainingRun:
    """A run opened for training, with all objects the loop needs."""

    directory: RunDir
    session: Session
    advantage: AdvantageFunction
    journal: RunJournal
    monitor: Monitor
    learner: Learner
    stop_requested: Callable[[], bool]
    """Returns whether the user has requested to stop after the current step."""

    @property
    def recorder(self) -> RunRecorder:
        return RunRecorder(self.journal, self.monitor)


async def train(run: TrainingRun, schedule: TaskSchedule) -> bool:
    """Train from the last checkpoint to the last step. True if the run is finished, False if the user stopped it.

    Raises:
        BudgetReached: the budget is spent.
        KernelRLError: all turns of a step were lost to infrastructure errors, or a plugin failed.
    """
    recipe, journal, monitor = run.session.recipe, run.journal, run.monitor
    await restore(run, schedule)
    at_start = await held_out(run, 0) if recipe.eval.at_start and journal.next_step == 0 else {}
    monitor.start_clock()
    async with RolloutQueue(
        lambda step: step_rollout(run, schedule, step),
        schedule.n_steps,
        staleness=recipe.train.staleness,
        fills_slots=recipe.sampling.concurrency is not None,
        stops=run.stop_requested,
    ) as rollouts:
        for step in range(journal.next_step, schedule.n_steps):
            if run.stop_requested():
                return False
            if (line := schedule.stage_line(step)) is not None:
                monitor.say(line)
            row, credit_rows = await train_step(run, schedule, rollouts, step)
            if step == 0:
                row |= {key.replace("eval", "eval_start", 1): value for key, value in at_start.items()}
            await commit(run, schedule, step, row)
            monitor.publish(StepFinished(row, credit_rows, schedule.n_steps))
    return True


async def train_step(
    run: TrainingRun, schedule: TaskSchedule, rollouts: RolloutQueue, step: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Rollout, credit, update and held-out evaluation of one step. Returns its metrics row and its credit rows."""
    recipe, session, began = run.session.recipe, run.session, time.monotonic()
    await rollouts.start(step)
    planned = planned_samples(recipe, len(rollouts.tasks(step)))
    update = run.learner.begin(step, schedule.n_steps, planned)
    groups: list[Group] = []
    batch: list[Credit] = []

    async def add(group: Group) -> None:
        credits_ = assign_credit([group], estimator(run), recipe.returns, recipe.train, recipe.seed)
        groups.append(group)
        batch.extend(credits_)
        await update.add(credits_)

    async for group in rollouts.groups(step):
        await add(group)
    n_planned = len(groups)
    for _ in range(recipe.train.refill):
        replacing = refill_rollout(run, schedule, step, len(groups), n_planned - n_with_signal(batch))
        if replacing is None:
            break
        async with replacing:
            async for group in replacing:
                await add(group)
    require_turns(groups, f"step {step + 1}", resume=f"kernelrl resume {run.directory.word}")
    rolled_out = time.monotonic()
    await rollouts.start_ahead(step)
    batch.sort(key=lambda credit: credit.turn.id)
    credit_rows = [credit.row() for credit in batch]
    await run.journal.record_credits(credit_rows)
    await session.environment.observe(credit_rows)
    learned = await update.finish()
    session.sampler.updates = step + 1
    trained = time.monotonic()
    groups.sort(key=lambda group: group.episodes[0].turns[0].id)
    row = step_metrics(step, schedule.n_steps, groups, batch, update.learning_rate)
    row |= schedule.learn(step, groups, row) | run.monitor.measure(groups)
    row |= run.journal.cache_hit(batch) | learned
    if recipe.train.refill:
        row["batch/refilled"] = len(groups) - n_planned
    if recipe.eval.is_due(step + 1, schedule.n_steps):
        await rollouts.start_next(step)  # sampled with the same weights as the held-out evaluation
        row |= await held_out(run, step + 1)
    row |= time_metrics(groups)
    return row | {"time/rollout": rolled_out - began, "time/train": trained - rolled_out}, credit_rows


def n_with_signal(batch: Sequence[Credit]) -> int:
    """Number of groups that contribute a training sample."""
    return len({credit.turn.id.task_index for credit in batch if not credit.exclusion_reason})


def refill_rollout(
    run: TrainingRun, schedule: TaskSchedule, step: int, n_sampled: int, n_missing: int
) -> Rollout | None:
    """The rollout of other tasks in place of groups without a signal, not started; None if there is nothing to do.

    Source: dynamic sampling of DAPO, arXiv 2503.14476, section 3.2.

    Args:
        n_sampled: number of groups that the step has sampled so far.
        n_missing: number of groups that the step lacks.
    """
    recipe, planned, spare = run.session.recipe, schedule.batch(step), schedule.spare(step)
    n_used = n_sampled - len(planned)
    tasks = spare[n_used : n_used + n_missing]
    if not tasks:
        return None
    turns = len(tasks) * recipe.train.group_size * recipe.episode.turns
    name = f"step {step}, {len(tasks)} groups in place of uniform ones"
    run.monitor.publish(PhaseStarted(name, turns, "train", step))
    return session_rollout(
        run.session, tasks, recipe.train.group_size, run.recorder,
        purpose="train", step=step, finished=run.journal.finished_turns(step, [*planned, *spare]),
        order=recipe.train.order, first_index=n_sampled,
    )  # fmt: skip


async def commit(run: TrainingRun, schedule: TaskSchedule, step: int, row: dict[str, Any]) -> None:
    """Write checkpoint files, checkpoint row and metrics row of a step. Adds durations and cost to the metrics row."""
    settings, began = run.session.recipe.train, time.monotonic()
    last = step + 1 == schedule.n_steps
    is_measured = settings.keep_best is not None and settings.keep_best in row
    if (step + 1) % settings.checkpoint_every == 0 or is_measured or last or run.stop_requested():
        name, label = checkpoint_name(step + 1), run.session.policy_label
        with run.session.timeline.span("saving"):
            saved = await save_checkpoint(run.learner.policy, run.directory.checkpoints, name, component=label)
        row |= {"time/save_checkpoint": time.monotonic() - began, **run.monitor.book()}
        loop = schedule.state() | run.monitor.state() | run.session.environment.state()
        await run.journal.commit(
            {
                "name": name,
                "step": step,
                **saved,
                "loop": {"next_step": step + 1, **loop},
                "metrics": row,
                "best": run.journal.is_best(row, settings.keep_best),
                "time": now(),
            }
        )
        kept = {best["name"]} if (best := best_checkpoint(run.journal.checkpoints)) is not None else set()
        await asyncio.to_thread(prune_checkpoints, run.directory.checkpoints, settings.keep_checkpoints, kept)
    else:
        row |= run.monitor.book()
    await run.journal.record_metrics(row)


async def restore(run: TrainingRun, schedule: TaskSchedule) -> None:
    """Restore policy, schedule, environment and monitor from the last checkpoint."""
    journal, session = run.journal, run.session
    sweep(run.directory.checkpoints)
    checkpoint = journal.last_checkpoint
    loop: Mapping[str, Any] = checkpoint["loop"] if checkpoint is not None else {}
    # Steps after the last checkpoint are repeated, so their metrics rows are ignored.
    done = (row for row in run.directory.rows("metrics") if row["step"] < journal.next_step)
    run.monitor.restore(loop, done)
    session.sampler.updates = journal.next_step
    if checkpoint is not None:
        schedule.restore(loop)
        session.environment.restore(loop)
        directory = run.directory.checkpoints
        await load_checkpoint(run.learner.policy, directory, checkpoint, component=session.policy_label)
        _log.info("continuing at step %d from checkpoint %s", journal.next_step, checkpoint["name"])


async def held_out(run: TrainingRun, update: int) -> dict[str, Any]:
    """Run the held-out evaluation after `update` updates and return its metrics under `eval/`."""
    began = time.monotonic()
    finished = functools.partial(run.journal.finished_evals, update)
    groups = await rollout_split(run.session, run.recorder, run.monitor.publish, update=update, finished=finished)
    metrics = split_metrics(groups, run.session.recipe.eval)
    return metrics | {"time/eval": time.monotonic() - began}


def step_rollout(run: TrainingRun, schedule: TaskSchedule, step: int) -> Rollout:
    """The rollout of a step, not started."""
    recipe, tasks = run.session.recipe, schedule.batch(step)
    others = schedule.spare(step) if recipe.train.refill else []
    finished = run.journal.finished_turns(step, [*tasks, *others])
    turns = len(tasks) * recipe.train.group_size * recipe.episode.turns
    run.monitor.publish(PhaseStarted(f"step {step}", turns, "train", step))
    return session_rollout(
        run.session, tasks, recipe.train.group_size, run.recorder,
        purpose="train", step=step, finished=finished, order=recipe.train.order,
    )  # fmt: skip


def estimator(run: TrainingRun) -> AdvantageFunction:
    """The recipe's advantage function, with the component's name in its errors."""

    label = f"advantage {run.session.recipe.advantage.use!r}"

    def estimate(returns: Returns) -> list[list[float]]:
        with plugin_boundary(label, "estimate"):
            found = run.advantage(returns)
            if not _fits(found, returns):
                raise wrong_return(
                    found, "a list of finite numbers per episode, as long as its returns", label, "estimate"
                )
            return found

    return estimate


def _fits(advantages: object, returns: Returns) -> bool:
    if not isinstance(advantages, list | tuple) or not all(isinstance(row, list | tuple) for row in advantages):
        return False
    numbers = all(isinstance(value, int | float) and math.isfinite(value) for row in advantages for value in row)
    return numbers and [len(row) for row in advantages] == [len(row) for row in returns]

"""The training loop around a policy and an environment of a test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from kernelrl_core.interfaces.advantages import AdvantageFunction
from kernelrl_core.monitoring.costs import CostMeter, prices_of
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.session import Session
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.training.execution import task_schedule
from kernelrl_core.training.learner import Learner
from kernelrl_core.training.loop import TrainingRun, train

__all__ = ["train_here"]


def train_here(
    run: RunDir,
    recipe: Recipe,
    environment: Any,
    policy: Any,
    advantage: AdvantageFunction,
    *,
    say: Callable[[str], None],
    loggers: LoggerThreads | None = None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> bool:
    """Train a run from where it stands; the answer is that of `train`."""
    environment.recipe = recipe
    journal = RunJournal(run)
    session = Session(recipe, environment, policy)
    observers = loggers or LoggerThreads({})

    async def scene() -> bool:
        meter = CostMeter(prices_of(recipe), recipe.cost.budget_usd, before=journal.spent, booked=journal.booked)
        monitor = Monitor([observers], meter, session.timeline, say)
        learner = Learner(recipe, policy, meter, session.timeline)
        schedule = task_schedule(session, journal, say)
        observers.start(run.path, {}, journal.next_step)
        return await train(TrainingRun(run, session, advantage, journal, monitor, learner, stop_requested), schedule)

    try:
        return asyncio.run(scene())
    finally:
        journal.close()
        run.unlock()

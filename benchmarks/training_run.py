"""The core's own training loop around a session of stand-ins."""

from __future__ import annotations

from kernelrl_core.interfaces.advantages import AdvantageFunction
from kernelrl_core.monitoring.costs import CostMeter, prices_of
from kernelrl_core.monitoring.events import Subscriber
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.rollout.session import Session, require_learning
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.training.execution import task_schedule
from kernelrl_core.training.learner import Learner
from kernelrl_core.training.loop import TrainingRun, train

__all__ = ["train_session"]


async def train_session(run: RunDir, session: Session, advantage: AdvantageFunction, *subscribers: Subscriber) -> None:
    """Train a new run to its last step, then close and unlock it. Lines for the user are dropped."""
    recipe, journal = session.recipe, RunJournal(run)
    try:
        meter = CostMeter(prices_of(recipe), None, before=journal.spent, booked=journal.booked)
        monitor = Monitor(subscribers, meter, session.timeline, _drop)
        learner = Learner(recipe, require_learning(recipe, session.policy), meter, session.timeline)
        schedule = task_schedule(session, journal, _drop)
        await train(TrainingRun(run, session, advantage, journal, monitor, learner, lambda: False), schedule)
    finally:
        journal.close()
        run.unlock()


def _drop(line: str) -> None: ...

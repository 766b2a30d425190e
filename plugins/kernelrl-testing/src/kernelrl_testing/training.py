"""The training loop of the core around a policy and an environment of a test, and a recipe for it.

    from kernelrl_core.api.runs import RunDir
    from kernelrl_testing.fakes import FakeEnvironment, FakePolicy
    from kernelrl_testing.training import make_recipe, train_here

    def centred(returns):
        mean = sum(map(sum, returns)) / sum(map(len, returns))
        return [[value - mean for value in row] for row in returns]

    def test_a_run_ends_with_its_last_step(tmp_path):
        run = RunDir.create(tmp_path / "run", {}, {})
        assert train_here(run, make_recipe(), FakeEnvironment(), FakePolicy(), centred)

Nothing is evaluated and no process is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs

from kernelrl_core.interfaces.advantages import AdvantageFunction
from kernelrl_core.interfaces.evaluators import EvaluatorConfig
from kernelrl_core.interfaces.policies import PolicyConfig
from kernelrl_core.monitoring.costs import CostMeter, prices_of
from kernelrl_core.monitoring.events import Subscriber
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.recipe.schema import Recipe, RewardUse, Use
from kernelrl_core.rollout.session import Session, require_learning
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.training.execution import task_schedule
from kernelrl_core.training.learner import Learner
from kernelrl_core.training.loop import TrainingRun, train

__all__ = ["make_recipe", "train_here", "train_session"]


def make_recipe(**blocks: Any) -> Recipe:
    """A recipe whose components are called `fake`, with the reward component `correct` and the advantage `grpo`."""
    plain = Recipe(
        tasks=Use("fake"),
        backend=Use("fake"),
        policy=Use("fake", PolicyConfig()),
        evaluator=Use("fake", EvaluatorConfig()),
        rewards={"correct": RewardUse("correctness")},
        advantage=Use("grpo"),
        feedback=Use("fake"),
    )
    return attrs.evolve(plain, **blocks)


async def train_session(
    run: RunDir,
    session: Session,
    advantage: AdvantageFunction,
    *subscribers: Subscriber,
    say: Callable[[str], None] = lambda line: None,
    stop_requested: Callable[[], bool] = lambda: False,
) -> bool:
    """Train a run to its last step, from the first or from its last checkpoint; then close and unlock it.

    Returns:
        Whether the last step was reached, as `train` does.
    """
    recipe, journal = session.recipe, RunJournal(run)
    try:
        meter = CostMeter(prices_of(recipe), recipe.cost.budget_usd, before=journal.spent, booked=journal.booked)
        monitor = Monitor(subscribers, meter, session.timeline, say)
        learner = Learner(recipe, require_learning(recipe, session.policy), meter, session.timeline)
        schedule = task_schedule(session, journal, say)
        for loggers in subscribers:
            if isinstance(loggers, LoggerThreads):
                loggers.start(run.path, {}, journal.next_step, run.steps_after)
        return await train(TrainingRun(run, session, advantage, journal, monitor, learner, stop_requested), schedule)
    finally:
        journal.close()
        run.unlock()


def train_here(
    run: RunDir,
    recipe: Recipe,
    environment: Any,
    policy: Any,
    advantage: AdvantageFunction,
    *subscribers: Subscriber,
    **more: Any,
) -> bool:
    """`train_session` with this recipe, environment and policy, in an event loop of its own."""
    environment.recipe = recipe
    return asyncio.run(train_session(run, Session(environment, policy), advantage, *subscribers, **more))

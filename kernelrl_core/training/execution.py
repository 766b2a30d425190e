"""Carrying out a run in this process: signals, log file, recorded state."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from kernelrl_core.errors import ExitCode, KernelRLError
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.costs import BudgetReached, CostMeter, prices_of
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.rollout.session import Session, open_session, require_learning
from kernelrl_core.runs.directory import RunDir, State
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.tasks.curriculum import TaskSchedule
from kernelrl_core.tasks.schedule import repeats_tasks
from kernelrl_core.tasks.selection import training_tasks
from kernelrl_core.training.learner import Learner
from kernelrl_core.training.loop import TrainingRun, train

__all__ = ["execute_run", "task_schedule"]

_log = logging.getLogger(__name__)


def execute_run(run: RunDir, recipe: Recipe, resolved: Mapping[str, Any], registry: Registry) -> ExitCode:
    """Train a run that this process has locked, from where it stands, and record how it ends.

    The first interrupt ends the run after the step, the second at once; before the first step one is enough.

    Raises:
        KernelRLError: the run failed. Its state says so, and it can be resumed.
    """
    console = Console()
    with _log_to(run.path / "logs.log", console):
        try:
            run.set_state("running")
            finished = asyncio.run(_train(run, recipe, resolved, registry, console))
        except BaseException as error:
            console.close()
            reason = _record_failure(run, first_error(error))
            raise reason from (error if error is not reason else None)
        console.close()
        run.set_state("finished" if finished else "stopped")
        if not finished:
            console.say(f"stopped; continue with: kernelrl resume {run.path}")
    return ExitCode.OK if finished else ExitCode.INTERRUPTED


async def _train(
    run: RunDir, recipe: Recipe, resolved: Mapping[str, Any], registry: Registry, console: Console
) -> bool:
    interrupts = _Interrupts(run, console)
    interrupts.listen()
    loggers = LoggerThreads({name: registry.make("loggers", use) for name, use in recipe.loggers.items()})
    advantage = registry.make("advantages", recipe.advantage)
    journal = RunJournal(run)
    state: State = "failed"
    try:
        async with open_session(recipe, registry, secret=run.secret(), run_dir=run.path, say=console.say) as session:
            policy = require_learning(recipe, session.policy)
            interrupts.started()
            prices, budget = prices_of(recipe), recipe.cost.budget_usd
            meter = CostMeter(prices, budget, before=journal.spent, booked=journal.booked)
            monitor = Monitor((console, loggers), meter, session.timeline, console.say)
            learner = Learner(recipe, policy, meter, session.timeline)
            schedule = task_schedule(session, journal, console.say)
            loggers.start(run.path, resolved, journal.next_step)
            opened = TrainingRun(run, session, advantage, journal, monitor, learner, interrupts.once)
            finished = await train(opened, schedule)
        state = "finished" if finished else "stopped"
        return finished
    except asyncio.CancelledError:
        interrupts.leave()
    finally:
        await asyncio.to_thread(loggers.finish, state)
        journal.close()


def task_schedule(session: Session, journal: RunJournal, say: Callable[[str], None]) -> TaskSchedule:
    """The tasks of every step; what is unusual about them is shown to the user."""
    settings = session.recipe.train
    tasks, left_out = training_tasks(session.environment.tasks, settings)
    if left_out is not None:
        say(left_out)
    if repeats_tasks(len(tasks), settings):
        say(f"only {len(tasks)} tasks for {settings.tasks_per_step} places: tasks repeat in a step")
    if journal.lost:
        say(f"{journal.lost} replies were under way when the run was interrupted; they are drawn again")
    return TaskSchedule(tasks, session.recipe)


class _Interrupts:
    """Ctrl-C, or SIGTERM: once to end after the step, twice to stop at once. While the policy starts there is no step
    to be finished, and nothing that would be lost."""

    def __init__(self, run: RunDir, console: Console) -> None:
        self._run, self._console, self._count = run, console, 0
        self._starting = True

    def listen(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in the main thread: nobody interrupts
            for number in (signal.SIGINT, signal.SIGTERM):
                self._loop.add_signal_handler(number, self._interrupted)

    def started(self) -> None:
        self._starting = False

    def once(self) -> bool:
        return self._count > 0

    def leave(self) -> NoReturn:
        """End the process now. Threads that are still computing cannot be waited for, and nothing is half-written."""
        self._console.close()
        self._run.set_state("stopped")
        self._console.say(f"stopped at once; continue with: kernelrl resume {self._run.path}")
        logging.shutdown()
        os._exit(ExitCode.INTERRUPTED)

    def _interrupted(self) -> None:
        self._count += 1
        if self._count == 1 and not self._starting:
            self._console.say("finishing this step, then saving; once more to stop at once")
        elif self._task is not None:
            self._task.cancel()
            self._loop.call_later(1 if self._starting else 5, self.leave)


def _record_failure(run: RunDir, error: BaseException) -> BaseException:
    """Write the failure down; the answer is what to raise."""
    stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
    if not isinstance(error, KernelRLError) and not stopped:
        _log.error("the run failed", exc_info=error)
        error = KernelRLError(
            f"run {run.path} failed: {type(error).__name__}: {error}", fix=f"see {run.path / 'logs.log'}"
        )
    elif isinstance(error, BudgetReached):
        stopped = True
        error = KernelRLError(
            f"stopped: {error.message}; what was sampled is kept",
            fix=f"raise cost.budget_usd in {run.path / 'recipe.yaml'}, "
            f"then kernelrl resume {run.path} --accept-changes",
        )
        _log.warning("%s", error.message)
    elif isinstance(error, KernelRLError):
        # Plugins do not know the name of the run.
        error.fix = error.fix.replace("kernelrl resume RUN", f"kernelrl resume {run.path}")
        _log.error("the run failed: %s", error)
    # On a full disk the state cannot be written either; the run then counts as killed, and resumes as well.
    with suppress(KernelRLError):
        run.set_state("stopped" if stopped else "failed", str(error))
    return error


@contextmanager
def _log_to(path: Path, console: Console) -> Iterator[None]:
    """Everything logged goes to the file, warnings to the user too."""
    try:
        to_file: logging.Handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise KernelRLError(f"{path}: {error.strerror}") from error
    to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    to_file.handleError = lambda record: None  # type: ignore[method-assign]  # a full disk is reported by the journals
    to_user = _ToUser(console)
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    for handler in (to_file, to_user):
        root.addHandler(handler)
    try:
        yield
    finally:
        for handler in (to_file, to_user):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)


class _ToUser(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        # Errors that end the run are told by the command itself.
        if record.name != __name__:
            self._console.show(f"{record.levelname.lower()}: {record.getMessage()}")

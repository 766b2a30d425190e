"""Execution of a run in this process: signals, log file, recorded state."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NoReturn

from kernelrl_core.errors import ExitCode, KernelRLError, StorageError
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.costs import BudgetReached, CostMeter, prices_of
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.monitoring.run_log import log_to
from kernelrl_core.plugins.boundary import first_error
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import pending_preparations
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
_STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def execute_run(run: RunDir, recipe: Recipe, resolved: Mapping[str, Any], registry: Registry) -> ExitCode:
    """Train a run from its last checkpoint, record the final state, and release the lock that the caller holds.

    The first interrupt (Ctrl-C, SIGTERM or SIGHUP) stops the run after the current step, the second stops it
    immediately. While the policy starts, the first one stops it immediately.

    Args:
        resolved: the recipe as plain data, for the loggers.

    Returns:
        `OK` if the run finished, `INTERRUPTED` if it was stopped after a step.

    Raises:
        KernelRLError: the run failed. The error is recorded in the run's state; the run can be resumed.
    """
    console = Console(run.set_progress, run.path / "logs.log")
    interrupts = _Interrupts(run, console)
    with log_to(run.path / "logs.log", console, silent=__name__), ExitStack() as at_end:
        at_end.callback(interrupts.restore)
        # Not at the end of the process: 'kernelrl stop' would then signal a process that only prints the result.
        at_end.callback(run.unlock)
        try:
            run.set_state("running")
            finished = asyncio.run(_train(run, recipe, resolved, registry, console, interrupts))
        except BaseException as error:
            console.close()
            reason = _record_failure(run, first_error(error), console)
            raise reason from (error if error is not reason else None)
        console.close()
        run.set_state("finished" if finished else "stopped")
        if not finished:
            console.say(f"stopped; continue with: kernelrl resume {run.word}")
    return ExitCode.OK if finished else ExitCode.INTERRUPTED


async def _train(
    run: RunDir,
    recipe: Recipe,
    resolved: Mapping[str, Any],
    registry: Registry,
    console: Console,
    interrupts: _Interrupts,
) -> bool:
    interrupts.listen()
    loggers = LoggerThreads({name: registry.make("loggers", use) for name, use in recipe.loggers.items()})
    advantage = registry.make("advantages", recipe.advantage)
    journal = RunJournal(run)
    state: State = "failed"
    began = time.monotonic()
    reporting = asyncio.create_task(console.keep_reporting())
    try:
        for pending in pending_preparations(spec_of(recipe)):
            console.say(pending)
        after = f", to continue after step {journal.next_step}" if journal.next_step else ""
        console.say(f"preparing policy {recipe.policy.use!r} and evaluator {recipe.evaluator.use!r}{after}")
        async with open_session(
            recipe, registry, secret=run.secret(), run_dir=run.path, say=console.say, origin=run.origin()
        ) as session:
            policy = require_learning(recipe, session.policy)
            interrupts.started()
            prices, budget = prices_of(recipe), recipe.cost.budget_usd
            meter = CostMeter(prices, budget, before=journal.spent, booked=journal.booked)
            monitor = Monitor((console, loggers), meter, session.timeline, console.say, began)
            learner = Learner(recipe, policy, meter, session.timeline)
            schedule = task_schedule(session, journal, console.say)
            await _say_leak_rate(session, schedule, console.say)
            loggers.start(run.path, resolved, journal.next_step, run.steps_after)
            opened = TrainingRun(run, session, advantage, journal, monitor, learner, interrupts.once)
            finished = await train(opened, schedule)
        state = "finished" if finished else "stopped"
        return finished
    except asyncio.CancelledError:
        interrupts.leave()
    finally:
        reporting.cancel()
        await asyncio.to_thread(loggers.finish, state)
        journal.close()


def task_schedule(session: Session, journal: RunJournal, say: Callable[[str], None]) -> TaskSchedule:
    """The task schedule of a run. Prints excluded tasks, repeated tasks and unfinished replies to the user."""
    settings = session.recipe.train
    tasks, excluded = training_tasks(session.environment.tasks, settings, session.recipe.eval.split)
    if excluded is not None:
        say(excluded)
    if repeats_tasks(len(tasks), settings):
        say(f"train.tasks_per_step={settings.tasks_per_step} exceeds the {len(tasks)} tasks; tasks repeat in a batch")
    if journal.damaged:
        say(f"warning: {journal.damaged}")
    if journal.lost:
        say(f"resampling {journal.lost} replies that were unfinished when the run was interrupted")
    return TaskSchedule(tasks, session.recipe)


async def _say_leak_rate(session: Session, schedule: TaskSchedule, say: Callable[[str], None]) -> None:
    """Print the share of leaks that the guard excludes."""
    retrieval = session.environment.retrieval
    if retrieval is not None:
        say(await asyncio.to_thread(retrieval.leak_line, schedule.tasks))


class _Interrupts:
    """Counts Ctrl-C, SIGTERM and SIGHUP: the first stops after the current step, the second immediately. While the
    policy starts, the first stops immediately, because no work can be lost.

    Those that arrive after the last step, while the end of the run is recorded, change nothing. Handlers of the event
    loop would be gone by then, and the signal would end the process before it has recorded the end.
    """

    def __init__(self, run: RunDir, console: Console) -> None:
        self._run, self._console, self._count = run, console, 0
        self._starting = True
        # Not read in `listen`: the event loop has replaced the handler of Ctrl-C by then.
        self._former = {number: signal.getsignal(number) for number in _STOPPING}

    def listen(self) -> None:
        """Handle the signals, in the event loop that calls this, until `restore`."""
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        with suppress(ValueError):  # not the main thread: no signals
            self._handle(signal.SIGINT, self._interrupted)
            self._handle(signal.SIGTERM, self._interrupted)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup ignores it
                self._handle(signal.SIGHUP, self._hung_up)

    def restore(self) -> None:
        """Give the signals back to their former handlers."""
        with suppress(ValueError):  # not the main thread: nothing was replaced
            for number, handler in self._former.items():
                signal.signal(number, handler)

    def _handle(self, number: signal.Signals, react: Callable[[], None]) -> None:
        def received(*_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed: the end of the run is being recorded
                self._loop.call_soon_threadsafe(react)

        signal.signal(number, received)

    def started(self) -> None:
        self._starting = False

    def once(self) -> bool:
        return self._count > 0

    def leave(self) -> NoReturn:
        """Exit the process without waiting for threads that still compute. Files are written atomically."""
        self._console.close()
        self._run.set_state("stopped", progress=self._console.progress())
        lost = " during the preparation; a warm start that had not ended is lost" if self._starting else " immediately"
        self._console.say(f"stopped{lost}; continue with: kernelrl resume {self._run.word}")
        logging.shutdown()
        os._exit(ExitCode.INTERRUPTED)

    def _hung_up(self) -> None:
        """The terminal was closed: nothing can be printed there any more."""
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):
            if os.isatty(stream):
                os.dup2(nowhere, stream)
        self._interrupted()

    def _interrupted(self) -> None:
        self._count += 1
        if self._count == 1 and not self._starting:
            self._console.stopping = True
            self._run.set_progress(self._console.progress())
            self._console.say("finishing this step, then saving; interrupt again to stop immediately")
        elif self._task is not None:
            self._task.cancel()
            self._loop.call_later(1 if self._starting else 5, self.leave)


def _record_failure(run: RunDir, error: BaseException, console: Console) -> BaseException:
    """Record the failure in the state and the log; return the exception to raise."""
    stopped = isinstance(error, KeyboardInterrupt | asyncio.CancelledError)
    if not isinstance(error, KernelRLError) and not stopped:
        _log.error("the run failed", exc_info=error)
        error = KernelRLError(
            f"run {run.path} failed: {type(error).__name__}: {error}",
            fix=f"see {run.path / 'logs.log'}",
            see="run-failed",
        )
    elif isinstance(error, BudgetReached):
        stopped = True
        error = KernelRLError(
            f"stopped: {error.message}; all finished turns are saved",
            fix=f"raise cost.budget_usd in {run.path / 'recipe.yaml'}, "
            f"then kernelrl resume {run.word} --accept-changes",
            see="budget",
        )
        _log.warning("%s", error.message)
    elif isinstance(error, KernelRLError):
        # Plugins write the placeholder RUN, because they do not know the path of the run.
        error.fix = error.fix.replace("kernelrl resume RUN", f"kernelrl resume {run.word}")
        if isinstance(error, StorageError):
            error.fix = f"free disk space or permit access, then kernelrl resume {run.word}"
        _log.error("the run failed: %s", error)
    # On a read-only disk the state cannot be written either. The run then counts as killed and can still be resumed.
    with suppress(KernelRLError):
        run.set_state("stopped" if stopped else "failed", str(error), console.progress())
    return error

"""Loggers of a recipe. Each has its own thread, so a slow or failing logger does not block the run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.interfaces.loggers import Logger
from kernelrl_core.monitoring.events import Event, StepFinished, TurnFinished
from kernelrl_core.plugins.output import output_to_stderr

__all__ = ["LoggerThreads", "Recorded"]

_log = logging.getLogger(__name__)

Recorded = Callable[[int], Iterable[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]]
"""Returns the metrics row and the credit rows of each recorded step after a step."""


class LoggerThreads:
    """The loggers of a run, each in its own thread.

    Args:
        loggers: name -> logger.
        patience_s: seconds that `finish` waits for the loggers.
    """

    def __init__(self, loggers: Mapping[str, Logger], *, patience_s: float = 30.0) -> None:
        self._threads = [_LoggerThread(name, logger) for name, logger in loggers.items()]
        self._patience_s = patience_s
        self._started = False

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int, recorded: Recorded) -> None:
        """Queue the start, and the recorded steps that a logger lacks. `recorded` is called in the threads."""
        self._started = True
        for observer in self._threads:
            observer.inbox.put((observer.start, (run_dir, recipe, first_step, recorded)))

    def handle(self, event: Event) -> None:
        """Queue an event for all loggers."""
        for observer in self._threads:
            match event:
                case TurnFinished(purpose="train", row=row) if observer.takes_turns:
                    observer.inbox.put((observer.call, ("turn", row)))
                case StepFinished(metrics=metrics, credits=rows):
                    observer.inbox.put((observer.step, (metrics, rows)))

    def evaluation(self, results: Mapping[str, Any]) -> None:
        """Queue the metrics `eval/*` of a held-out evaluation outside of the run, and its `step`."""
        for observer in self._threads:
            observer.inbox.put((observer.call, ("evaluation", results)))

    def finish(self, state: str) -> None:
        """Queue the end of the run, and wait up to `patience_s` seconds until the loggers have processed all events."""
        for observer in self._threads:
            if self._started:
                observer.inbox.put((observer.call, ("finish", state)))
            observer.inbox.put(None)
        deadline = time.monotonic() + self._patience_s
        for observer in self._threads:
            observer.thread.join(max(0.0, deadline - time.monotonic()))
            if observer.thread.is_alive():
                _log.warning("logger %r did not finish within %g s", observer.name, self._patience_s)


class _LoggerThread:
    def __init__(self, name: str, logger: Logger) -> None:
        self.name = name
        self._logger, self._last, self._failed = logger, -1, False
        # A thread that wakes for every turn would compete with the event loop for nothing.
        self.takes_turns = type(logger).turn is not Logger.turn
        self.inbox: queue.SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = queue.SimpleQueue()
        # Daemon: a logger that hangs must not keep the process alive.
        self.thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self.thread.start()

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int, recorded: Recorded) -> None:
        try:
            held: object = self._logger.start(run_dir, recipe, first_step)
            if held is not None and not isinstance(held, int):
                raise TypeError(f"start returned {held!r}, not the last step that it has, or None")
            self._last = first_step - 1 if held is None else held
            for metrics, rows in recorded(self._last):
                self.step(metrics, rows)
        except (Exception, SystemExit):  # plugin code, or a damaged journal; an error in it must not end the run
            self._failed = True
            _log.exception("logger %r failed in start; it gets no events, and the run continues", self.name)

    def step(self, metrics: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> None:
        # A resumed run repeats steps. The first row of a step counts, as in metrics.jsonl.
        if metrics["step"] <= self._last:
            return
        self._last = metrics["step"]
        for results in _evaluations(metrics):
            self.call("evaluation", results)
        self.call("credits", rows)
        self.call("step", {name: value for name, value in metrics.items() if not name.startswith(_HELD_OUT)})

    def call(self, method: str, *arguments: Any) -> None:
        if self._failed:
            return
        try:
            getattr(self._logger, method)(*arguments)
        except (Exception, SystemExit):  # plugin code; an error in it must not end the run
            _log.exception("logger %r failed in %s; the run continues", self.name, method)

    def _work(self) -> None:
        with output_to_stderr():
            while (item := self.inbox.get()) is not None:
                method, arguments = item
                method(*arguments)


_HELD_OUT = ("eval/", "eval_start/")
"""Beginnings of the names of metrics of held-out evaluations."""


def _evaluations(metrics: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The held-out evaluations in a metrics row: before the first step, and after the step."""
    for prefix, step in (("eval_start/", 0), ("eval/", metrics["step"] + 1)):
        found = {f"eval/{name.removeprefix(prefix)}": metrics[name] for name in metrics if name.startswith(prefix)}
        if found:
            yield {"step": step, **found}

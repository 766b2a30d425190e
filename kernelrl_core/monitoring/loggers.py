"""Loggers of a recipe. Each has its own thread, so a slow or failing logger does not block the run."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelrl_core.interfaces.loggers import Logger
from kernelrl_core.monitoring.events import EvaluationFinished, Event, StepFinished, TurnFinished

__all__ = ["LoggerThreads"]

_log = logging.getLogger(__name__)


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

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> None:
        self._started = True
        self._tell("start", run_dir, recipe, first_step)

    def handle(self, event: Event) -> None:
        """Queue an event for all loggers."""
        match event:
            case TurnFinished(purpose="train", row=row):
                self._tell("turn", row)
            case StepFinished(metrics=metrics, credits=rows):
                self._tell("credits", rows)
                self._tell("step", metrics)
            case EvaluationFinished(step=step, metrics=metrics):
                self._tell("evaluation", {"step": step, **metrics})

    def finish(self, state: str) -> None:
        """Queue the end of the run, and wait up to `patience_s` seconds until the loggers have processed all events."""
        if self._started:
            self._tell("finish", state)
        self._tell("")
        deadline = time.monotonic() + self._patience_s
        for observer in self._threads:
            observer.thread.join(max(0.0, deadline - time.monotonic()))
            if observer.thread.is_alive():
                _log.warning("logger %r did not finish within %g s", observer.name, self._patience_s)

    def _tell(self, method: str, *arguments: Any) -> None:
        for observer in self._threads:
            observer.inbox.put((method, arguments))


class _LoggerThread:
    def __init__(self, name: str, logger: Logger) -> None:
        self.name = name
        self._logger = logger
        self.inbox: queue.SimpleQueue[tuple[str, tuple[Any, ...]]] = queue.SimpleQueue()
        # Daemon: a logger that hangs must not keep the process alive.
        self.thread = threading.Thread(target=self._work, name=f"logger-{name}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while True:
            method, arguments = self.inbox.get()
            if not method:
                return
            try:
                getattr(self._logger, method)(*arguments)
            except Exception:  # plugin code; an error in it must not end the run
                _log.exception("logger %r failed in %s; the run continues", self.name, method)

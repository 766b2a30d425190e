"""Loggers: observers of a run.

Each logger has a worker thread in which all its methods are called. An exception is logged
and does not end the run.

    # my_plugin/__init__.py
    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_loggers():
        return [Component("csv", "my_plugin.csv_logger:CsvLogger")]

    # my_plugin/csv_logger.py
    from kernelrl_core.api.loggers import Logger

    class CsvLogger(Logger):
        def start(self, run_dir, recipe, first_step):
            self._file = (run_dir / "reward.csv").open("a")

        def step(self, metrics):
            self._file.write(f"{metrics['step']},{metrics.get('reward/mean', '')}\\n")

        def finish(self, state):
            self._file.close()

In a recipe:

    loggers:
      csv: {use: csv}
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.interfaces.config import ComponentConfig

__all__ = ["Logger", "LoggerConfig"]


@attrs.frozen
class LoggerConfig(ComponentConfig):
    """Options of a logger."""


class Logger(ABC):
    """Observes a run. Override the methods for the events of interest."""

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> None:
        """The run starts, or resumes at `first_step`. `recipe` is the resolved recipe as plain data."""

    def turn(self, row: Mapping[str, Any]) -> None:
        """One row of `samples.jsonl`, after it is on disk."""

    def credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows of `credits.jsonl` of a step, after they are on disk."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """One row of `metrics.jsonl`, after it is on disk."""

    def evaluation(self, results: Mapping[str, Any]) -> None:
        """A held-out evaluation ended: its metrics `eval/*`, and `step`, the number of steps before it.

        Called before these metrics are on disk: they are written with the metrics row of the step.
        """

    def finish(self, state: Literal["finished", "stopped", "failed"]) -> None:
        """The run ended."""

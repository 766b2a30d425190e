"""Loggers: observers of a run.

An exception of a logger is logged and stops nothing; every call is made in a worker thread of the logger.

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
    """Observes a run. Override the methods whose events it wants."""

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> None:
        """The run starts, or continues at `first_step`. `recipe` is the resolved recipe as plain data."""

    def turn(self, row: Mapping[str, Any]) -> None:
        """A row of `samples.jsonl`, after it is on disk."""

    def credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows of `credits.jsonl` of a step, after they are on disk."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """A row of `metrics.jsonl`, after it is on disk."""

    def evaluation(self, results: Mapping[str, Any]) -> None:
        """A held-out evaluation is over: its metrics `eval/*`, and `step`, the number of steps before it."""

    def finish(self, state: Literal["finished", "stopped", "failed"]) -> None:
        """The run ended."""

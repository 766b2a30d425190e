"""Loggers: observers of a run.

Each logger has a worker thread in which all its methods are called. An exception is logged
and does not end the run.

`kernelrl plugins new loggers NAME` writes a sample plugin.
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

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int | None:
        """The run starts, or resumes at `first_step`. `recipe` is the resolved recipe as plain data.

        After an exception the logger gets no events.

        Returns:
            Index of the last step that the logger holds from an earlier process, -1 if it holds none: it gets all
            later steps, each once, also those that a crash withheld from it. None: it gets the steps from `first_step`.
        """

    def turn(self, row: Mapping[str, Any]) -> None:
        """One row of `samples.jsonl`, after it is on disk."""

    def credits(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """The rows of `credits.jsonl` of a step, before its `step`. They are on disk."""

    def step(self, metrics: Mapping[str, Any]) -> None:
        """One row of `metrics.jsonl`, after it is on disk, without the metrics of held-out evaluations."""

    def evaluation(self, results: Mapping[str, Any]) -> None:
        """The metrics `eval/*` of a held-out evaluation, and `step`, the number of steps before it.

        Follows when they are on disk: immediately before the `credits` of the step whose row has them. `kernelrl eval
        --log-to` calls it at any later time, also for an earlier step.
        """

    def finish(self, state: Literal["finished", "stopped", "failed"]) -> None:
        """The run ended."""

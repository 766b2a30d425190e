"""Logger `trackio`: the metrics of a run in Trackio's database on this machine."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import trackio
from trackio.sqlite_storage import SQLiteStorage

from kernelrl_core.api.loggers import Logger
from kernelrl_plugin_trackio.config import TrackioConfig

__all__ = ["TrackioLogger"]

_log = logging.getLogger(__name__)

_STEP = "progress/batch"
"""Present in every row of a step, and in no row of a held-out evaluation."""
_MARK = "trackio_project"
"""File in the run directory that marks a run which Trackio knows."""


class TrackioLogger(Logger):
    """Logs to one run of Trackio for all processes of a run."""

    def __init__(self, options: TrackioConfig) -> None:
        self._project = options.project

    def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int:
        mark = run_dir / _MARK
        known = mark.exists() and mark.read_text(encoding="utf-8") == self._project
        # A directory that replaces a deleted one of the same name is another run.
        resume = "allow" if known else "never"
        with redirect_stdout(io.StringIO()) as printed:  # the results of a command are on stdout
            self._run = trackio.init(
                self._project,
                run_dir.name,
                config=dict(recipe),
                resume=resume,
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        _log.info("%s", printed.getvalue())
        mark.write_text(self._project, encoding="utf-8")
        held = SQLiteStorage.get_metric_values(self._project, self._run.name, _STEP, run_id=self._run.id)
        return max((int(row["step"]) for row in held), default=-1)

    def evaluation(self, results: Mapping[str, Any]) -> None:
        self._run.log({name: value for name, value in results.items() if name != "step"}, step=results["step"])

    def step(self, metrics: Mapping[str, Any]) -> None:
        values = {name: value for name, value in metrics.items() if name != "step" and value is not None}
        self._run.log({**values, _STEP: metrics["step"]}, step=metrics["step"])

    def finish(self, state: str) -> None:
        with redirect_stdout(io.StringIO()):
            trackio.finish()

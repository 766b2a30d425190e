'''Loggers: observers of a run.

Each logger has a worker thread in which all its methods are called. An exception is logged
and does not end the run.

    # src/kernelrl_plugin_csv_file/__init__.py
    """Logger `csv_file` for kernelrl."""

    from kernelrl_core.api import Component, hookimpl


    @hookimpl
    def kernelrl_loggers() -> list[Component]:
        return [
            Component(
                "csv_file",
                target="kernelrl_plugin_csv_file.logger:CsvFile",
                config="kernelrl_plugin_csv_file.options:CsvFileConfig",
                summary="Mean score of each step in a CSV file",
            )
        ]

    # src/kernelrl_plugin_csv_file/options.py
    """Options of the logger `csv_file`."""

    import attrs

    from kernelrl_core.api.loggers import LoggerConfig


    @attrs.frozen
    class CsvFileConfig(LoggerConfig):
        """Options."""

        file: str = "reward.csv"
        """Name of the file in the run directory."""

    # src/kernelrl_plugin_csv_file/logger.py
    """The logger `csv_file`."""

    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any, Literal

    from kernelrl_core.api.loggers import Logger
    from kernelrl_plugin_csv_file.options import CsvFileConfig


    class CsvFile(Logger):
        """A line `step,value` for each step."""

        def __init__(self, config: CsvFileConfig) -> None:
            self._name = config.file
            self._path = Path()

        def start(self, run_dir: Path, recipe: Mapping[str, Any], first_step: int) -> int:
            self._path = run_dir / self._name
            lines = self._path.read_text().split() if self._path.exists() else []
            return int(lines[-1].partition(",")[0]) if lines else -1

        def step(self, metrics: Mapping[str, Any]) -> None:
            with self._path.open("a") as file:
                file.write(f"{metrics['step']},{metrics.get('reward/mean', '')}\\n")

        def finish(self, state: Literal["finished", "stopped", "failed"]) -> None:
            """Every line is in the file already."""

    # tests/test_csv_file.py
    """Contract and file of the logger `csv_file`."""

    from pathlib import Path

    from kernelrl_core.testing.contracts import LoggerContract
    from kernelrl_plugin_csv_file.logger import CsvFile
    from kernelrl_plugin_csv_file.options import CsvFileConfig


    class TestContract(LoggerContract):
        component = "csv_file"


    def test_a_resumed_run_continues_the_file(tmp_path: Path) -> None:
        for step, held in ((0, -1), (1, 0)):
            logger = CsvFile(CsvFileConfig())
            assert logger.start(tmp_path, {}, step) == held
            logger.step({"step": step, "reward/mean": 0.5})
            logger.finish("stopped")
        assert (tmp_path / "reward.csv").read_text() == "0,0.5\\n1,0.5\\n"

In a recipe:

    loggers:
      curve: {use: csv_file, file: curve.csv}
'''

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

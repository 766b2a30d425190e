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
            file.write(f"{metrics['step']},{metrics.get('reward/mean', '')}\n")

    def finish(self, state: Literal["finished", "stopped", "failed"]) -> None:
        """Every line is in the file already."""

"""The task sources fulfil their contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelrl_testing.contracts import TaskSourceContract


class TestKernelBench(TaskSourceContract):
    component = "kernelbench"

    @pytest.fixture(autouse=True)
    def _clone(self, clone: Path) -> None:
        self.options = {"root": str(clone), "holdout": {"level1": [1]}}


class TestDirectory(TaskSourceContract):
    component = "directory"

    @pytest.fixture(autouse=True)
    def _files(self, clone: Path) -> None:
        self.options = {"path": str(clone / "KernelBench"), "holdout": {"fraction": 0.2}}


class TestDataset(TaskSourceContract):
    component = "dataset"

    @pytest.fixture(autouse=True)
    def _rows(self, tmp_path: Path, task_source: Any) -> None:
        path = tmp_path / "set.json"
        path.write_text(
            json.dumps([{"code": task_source(n), "level": 1, "name": f"{n}", "problem_id": n} for n in (1, 2)])
        )
        self.options = {"path": str(path)}

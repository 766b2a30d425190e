"""Logger `trackio` with the real package and its database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trackio")

from kernelrl_testing.contracts import LoggerContract

PROCESS = """
import sys
from pathlib import Path
from kernelrl_plugin_trackio.config import TrackioConfig
from kernelrl_plugin_trackio.logger import TrackioLogger
run = Path(sys.argv[1])
run.mkdir(parents=True, exist_ok=True)
logger = TrackioLogger(TrackioConfig("mine"))
print(logger.start(run, {"train": {"steps": 3}}, 0))
logger.evaluation({"step": 40, "eval/pass@1": 0.25})
for step in map(int, sys.argv[2:]):
    logger.step({"step": step, "reward/mean": 0.5, "train/kl": None})
logger.finish("finished")
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of project `mine`. Trackio reads the variable when it is imported, so processes of their own log."""
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    return tmp_path / "trackio/mine.db"


class TestTrackio(LoggerContract):
    component = "trackio"

    @pytest.fixture(autouse=True)
    def _own_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from trackio import sqlite_storage

        monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")


def log(run: Path, *steps: int) -> int:
    """Log steps in a process; returns the last step held before. Its output has nothing of Trackio."""
    command = [sys.executable, "-c", PROCESS, str(run), *map(str, steps)]
    return int(subprocess.run(command, env=os.environ, capture_output=True, text=True, check=True).stdout)


def rows(database: Path) -> list[tuple[str, int, dict[str, Any]]]:
    with sqlite3.connect(database) as found:
        return [
            (run, step, json.loads(metrics))
            for run, step, metrics in found.execute("SELECT run_id, step, metrics FROM metrics ORDER BY id")
        ]


def test_metrics_keep_their_names(database: Path, tmp_path: Path) -> None:
    assert log(tmp_path / "run", 0, 1) == -1
    expected = [(40, {"eval/pass@1": 0.25})]
    expected += [(step, {"reward/mean": 0.5, "progress/batch": step}) for step in (0, 1)]
    assert [(step, metrics) for _, step, metrics in rows(database)] == expected


def test_a_resumed_run_is_continued_and_another_of_its_name_is_new(database: Path, tmp_path: Path) -> None:
    assert log(tmp_path / "a/run", 0, 1) == -1
    assert log(tmp_path / "a/run", 2) == 1
    assert log(tmp_path / "b/run", 0) == -1
    runs = [run for run, _, metrics in rows(database) if "reward/mean" in metrics]
    assert runs[0] == runs[1] == runs[2] != runs[3]

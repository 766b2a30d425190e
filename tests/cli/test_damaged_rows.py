"""Every command that reads a run names the file and line of a damaged row."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kernelrl_command_server import CommandServer

from kernelrl_core.runs.directory import RunDir

ROOT = Path(__file__).parents[1]
FORMER = ROOT / "data" / "former_run" / "killed"

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def kernelrl(tmp_path: Path, command_server: CommandServer) -> Call:
    """Two copies of a run exist, `whole` and `damaged`."""
    for name in ("whole", "damaged"):
        shutil.copytree(FORMER, tmp_path / "runs" / name)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "fakes"), "KERNELRL_CACHE_DIR": str(tmp_path / "cache")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return command_server.start(*arguments, cwd=tmp_path, env=environment).result()

    return call


def change(path: Path, key: str, value: Any = ...) -> None:
    """Change a value of the first row, or remove the key."""
    first, *others = path.read_text().splitlines(keepends=True)
    row = json.loads(first)
    row[key] = value
    if value is ...:
        del row[key]
    path.write_text("".join([json.dumps(row) + "\n", *others]))


READERS = {
    "samples": [
        ("watch", "damaged"),
        ("runs", "suspects", "damaged"),
        ("distill", "damaged", "--output", "out"),
        ("export", "damaged", "--output", "out"),
        ("export", "damaged", "--as", "dataset", "--output", "out"),
        ("resume", "damaged"),
    ],
    "eval_samples": [
        ("export", "damaged", "--as", "kernelbench", "--output", "out"),
        ("runs", "compare", "whole", "damaged"),
        ("eval", "damaged", "--kernels", "damaged"),
    ],
    "metrics": [("status", "damaged"), ("runs", "show", "damaged"), ("runs", "compare", "whole", "damaged")],
    "checkpoints": [("eval", "damaged"), ("export", "damaged", "--as", "weights", "--output", "out")],
    "credits": [("export", "damaged", "--as", "dataset", "--output", "out")],
}


@pytest.mark.parametrize("journal", READERS)
def test_a_row_that_lacks_a_key_is_named(kernelrl: Call, tmp_path: Path, journal: str) -> None:
    path = tmp_path / "runs" / "damaged" / f"{journal}.jsonl"
    change(path, "step")
    for arguments in READERS[journal]:
        failed = kernelrl(*arguments)
        assert failed.returncode == 1, arguments
        assert f"runs/damaged/{journal}.jsonl:1: step is missing\n" in failed.stderr
    assert not list(tmp_path.glob("*out*"))


def test_a_list_of_runs_shows_the_others_and_the_error(kernelrl: Call, tmp_path: Path) -> None:
    change(tmp_path / "runs" / "damaged" / "metrics.jsonl", "reward/mean", "high")
    (tmp_path / "runs" / "damaged" / "state.json").write_text("[]")
    listed = kernelrl("runs", "list")
    assert listed.returncode == 0
    first, second = sorted(listed.stdout.splitlines())
    assert "runs/damaged/metrics.jsonl:1: reward/mean must be a number" in first
    assert second.startswith("runs/whole    killed   2 of 3 steps")


def test_a_list_of_active_runs_shows_the_error_of_a_damaged_one(kernelrl: Call, tmp_path: Path) -> None:
    change(tmp_path / "runs" / "damaged" / "metrics.jsonl", "step")
    active = [RunDir(tmp_path / "runs" / name) for name in ("damaged", "whole")]
    for run in active:
        run.lock()
    first, second = sorted(kernelrl("status").stdout.splitlines())
    for run in active:
        run.unlock()
    assert re.fullmatch(r"runs/damaged +damaged +runs/damaged/metrics\.jsonl:1: step is missing", first)
    assert re.match(r"runs/whole +2 of 3 steps ", second)


def test_a_row_of_a_result_file_is_named(kernelrl: Call, tmp_path: Path) -> None:
    kernelrl("eval", "whole", "--output", "result.json")
    document = json.loads((tmp_path / "result.json").read_text())
    del document["rows"][2]["score"]["total"]
    (tmp_path / "result.json").write_text(json.dumps(document))
    for arguments in (("export", "result.json", "--output", "out"), ("runs", "compare", "whole", "result.json")):
        failed = kernelrl(*arguments)
        assert failed.returncode == 2
        assert "result.json: no output of kernelrl eval: rows[2].score.total is missing\n" in failed.stderr


@pytest.mark.parametrize("text", ["[]", "7", "{}"])
def test_a_damaged_provenance_is_named_or_shown_as_unknown(kernelrl: Call, tmp_path: Path, text: str) -> None:
    (tmp_path / "runs" / "damaged" / "provenance.json").write_text(text)
    shown = kernelrl("runs", "show", "damaged")
    if text == "{}":
        assert shown.stdout.count("unknown") == 2
    else:
        assert "runs/damaged/provenance.json cannot be read: it is not a JSON object" in shown.stderr

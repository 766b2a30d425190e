"""Journals survive crashes, damaged lines and full disks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.errors import KernelRLError, StorageError, UsageError
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.runs.journal import Journal, JournalReader, read_rows
from kernelrl_core.types import SampleId
from kernelrl_testing.values import make_turn


def test_rows_are_read_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.append([{"x": 0.1, "text": "ä\ud800\n"}, {"x": None}])
    journal.append([])
    journal.close()
    assert list(read_rows(tmp_path / "a.jsonl")) == [{"x": 0.1, "text": "ä\ud800\n"}, {"x": None}]


@pytest.mark.parametrize("tail", [b'{"n": 2, "half', b"\x00\x00\x00\n", b"not json\n", b"[1]\n"])
def test_a_damaged_last_line_is_moved_to_another_file(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n": 1}\n' + tail)
    journal = Journal(path)
    journal.append([{"n": 3}])
    journal.close()
    assert [row["n"] for row in read_rows(path)] == [1, 3]
    assert tail.strip() in (tmp_path / "a.jsonl.damaged").read_bytes()


def test_damage_before_the_last_line_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\nxx\n{"n": 3}\n')
    with pytest.raises(KernelRLError, match=r"a\.jsonl:2"):
        list(read_rows(path))


def test_a_reader_continues_behind_the_rows_that_it_has_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = JournalReader(path)
    assert list(reader.new_rows()) == []
    path.write_text('{"n": 1}\n{"n": 2}\n{"n": 3, "unfin')
    assert [row["n"] for _, row in reader.new_rows()] == [1, 2]
    assert list(reader.new_rows()) == []
    with path.open("a") as stream:
        stream.write('ished": 0}\n{"n": 4}\n')
    later = list(reader.new_rows())
    assert [row["n"] for _, row in later] == [3, 4]
    assert reader.rows_at([later[1][0], 0]) == [{"n": 4}, {"n": 1}]


def test_a_reader_names_a_damaged_line_that_others_follow(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\nxx\n')
    reader = JournalReader(path)
    assert [row["n"] for _, row in reader.new_rows()] == [1]
    with path.open("a") as stream:
        stream.write('{"n": 3}\n')
    with pytest.raises(KernelRLError, match=r"a\.jsonl:2"):
        list(reader.new_rows())


def test_a_full_disk_leaves_complete_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    journal.append([{"n": 1}])
    real = os.write

    def full(fd: int, data: bytes) -> int:
        if len(data) > 4:
            return real(fd, bytes(data[:4]))
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(KernelRLError, match="No space left"):
        journal.append([{"n": 22222}])
    monkeypatch.undo()
    journal.append([{"n": 3}])
    assert [row["n"] for row in read_rows(tmp_path / "a.jsonl")] == [1, 3]


def test_nan_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not finite"):
        Journal(tmp_path / "a.jsonl").append([{"x": float("nan")}])
    assert not (tmp_path / "a.jsonl").read_text()


def test_a_new_run_has_all_files_and_a_private_key(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "runs" / "a", {"seed": 1}, {"kernelrl": "0"})
    names = {path.name for path in run.path.iterdir()}
    assert {"recipe.yaml", "provenance.json", "secret.key", "samples.jsonl", "credits.jsonl", "logs.log"} <= names
    assert {"metrics.jsonl", "checkpoints.jsonl", "checkpoints", "lock"} <= names
    assert (run.path / "secret.key").stat().st_mode & 0o777 == 0o600
    assert len(run.secret()) == 32
    assert not run.recipe_changed()


def test_an_existing_directory_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(UsageError, match="already exists") as caught:
        RunDir.create(tmp_path / "a", {}, {})
    assert "kernelrl resume" in caught.value.fix
    assert not list((tmp_path / "a").iterdir())


@pytest.mark.parametrize(("version", "known"), [("0.0.9", True), ("0.1.7", True), ("0.2.0", False), ("1.0", False)])
def test_a_run_of_a_newer_version_is_refused(tmp_path: Path, version: str, known: bool) -> None:
    run = RunDir.create(tmp_path / "a", {}, {"kernelrl": version})
    if known:
        run.require_known_version()
    else:
        with pytest.raises(UsageError, match=f"written by kernelrl {version}"):
            run.require_known_version()


def test_the_key_can_be_set_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELRL_RUN_SECRET", "ab" * 32)
    assert RunDir.create(tmp_path / "a", {}, {}).secret() == b"\xab" * 32
    monkeypatch.setenv("KERNELRL_RUN_SECRET", "short")
    with pytest.raises(UsageError, match="KERNELRL_RUN_SECRET"):
        RunDir.create(tmp_path / "b", {}, {})


def test_a_run_is_locked_by_one_process_and_its_state_shows_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from kernelrl_core.runs.directory import RunDir\n"
        f"run = RunDir.create(Path({str(tmp_path / 'a')!r}), {{}}, {{}})\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    run = find_run(str(tmp_path / "a"))
    assert run.state() == ("running", "")
    with pytest.raises(UsageError, match="in use"):
        run.lock()
    child.kill()
    child.communicate()
    assert run.state()[0] == "killed"
    run.lock()
    run.set_state("failed", "disk")
    run.unlock()
    assert run.state() == ("failed", "disk")


def test_an_edited_recipe_is_detected(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "a", {"seed": 1}, {})
    (run.path / "recipe.yaml").write_text("seed: 2\n")
    assert run.recipe_changed()
    run.accept_recipe()
    assert not run.recipe_changed()
    assert len(json.loads((run.path / "provenance.json").read_text())["recipe_changes"]) == 1


def test_the_steps_after_a_step_have_their_metrics_and_credits(tmp_path: Path) -> None:
    run = RunDir.create(tmp_path / "run", {}, {})
    for name, rows in {
        "credits": [Credit(make_turn(id=SampleId(step, index, 0, 0))).row() for step in range(4) for index in range(2)],
        "metrics": [{"step": step, "time/total": 1.0, "progress/done_frac": 0.1} for step in range(3)],
    }.items():
        Journal(run.journal_path(name)).append(rows)
    found = [(metrics["step"], [row["sample"] for row in rows]) for metrics, rows in run.steps_after(0)]
    assert found == [(1, ["1.0.0.0", "1.1.0.0"]), (2, ["2.0.0.0", "2.1.0.0"])]
    assert list(run.steps_after(2)) == []


def test_a_journal_that_cannot_be_read_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    reader = JournalReader(tmp_path / "folder.jsonl")
    for read in (lambda: Journal(reader.path), lambda: list(reader.new_rows()), lambda: reader.rows_at([0])):
        with pytest.raises(StorageError, match=r"folder\.jsonl: Is a directory"):
            read()
    assert not JournalReader(tmp_path / "missing.jsonl").replaced()

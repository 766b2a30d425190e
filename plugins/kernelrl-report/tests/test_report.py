"""The file: its content, its size limit, and the runs of which it cannot be made."""

from __future__ import annotations

import base64
import errno
import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from report_runs import a_turn, append, credits_row, story

from kernelrl_core.api.runs import RunDir
from kernelrl_core.api.tasks import Outcome
from kernelrl_report.index import RunIndex
from kernelrl_report.report import write_report
from kernelrl_testing.core import main, sample_row
from kernelrl_testing.values import make_reply

Make = Callable[..., RunDir]
REPOSITORY = Path(__file__).parents[3]


def blocks(path: Path) -> dict[str, Any]:
    found = re.findall(rb'<script type="application/gzip" id="([\w-]+)">([^<]*)</script>', path.read_bytes())
    return {name.decode(): json.loads(gzip.decompress(base64.b64decode(data))) for name, data in found}


def run_command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["report", *arguments])
    return int(ended.value.code or 0)


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run_command(*arguments) != 0
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if not line.startswith(("kernelrl: fix: ", "kernelrl: more: "))]) == 1
    return "\n".join(lines)


def test_the_report_is_written_into_the_run(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert run_command(str(run.path)) == 0
    assert capsys.readouterr().out.startswith(f"report: {run.path / 'report.html'}  (9 samples, ")
    assert len(blocks(run.path / "report.html")["index"]["records"]) == 9


def test_the_secret_of_the_run_is_not_read(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    (run.path / "secret.key").unlink()
    assert write_report(run, tmp_path / "report.html", 1_000_000).samples == 9


def test_a_text_that_episodes_share_is_stored_once(make_run: Make, tmp_path: Path) -> None:
    turns = [a_turn((step, 0, 0, turn), "task", Outcome.INCORRECT) for step in range(5) for turn in range(2)]
    write_report(make_run(turns, []), tmp_path / "report.html", 1_000_000)
    assert json.dumps(blocks(tmp_path / "report.html")).count("You write kernels.") == 1


def test_thinking_and_kernel_are_parts_of_the_reply(make_run: Make, tmp_path: Path) -> None:
    write_report(make_run(story()[:1], []), tmp_path / "report.html", 1_000_000)
    episode = blocks(tmp_path / "report.html")["chunk-0"]["episodes"]["0.0.0.0"]
    assert json.dumps(episode).count("class ModelNew") == 1
    turn = episode["turns"][0]
    text, start, end = turn["source"]
    assert episode["texts"][text][start:end].startswith("import torch")


def test_a_retried_turn_counts_once_with_its_last_row(make_run: Make) -> None:
    run = make_run(story()[:1], [])
    append(run, "samples", [sample_row(a_turn((0, 0, 0, 0), "starter/1/add", Outcome.CORRECT, speedup=3.0))])
    index = RunIndex(run)
    index.refresh()
    assert [record[6] for record in index.records] == ["correct"]
    assert index.rows((0, 0, 0, 0))[0]["speedup"] == 3.0


def test_above_the_size_limit_the_least_informative_samples_lose_their_texts(
    make_run: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = [
        a_turn((0, 0, number, 0), "task", Outcome.INCORRECT, reply=make_reply(os.urandom(150_000).hex()))
        for number in range(12)
    ]
    run = make_run([*noise, a_turn((0, 1, 0, 0), "task", Outcome.CORRECT, speedup=2.0)], [])
    append(run, "credits", [credits_row("0.0.3.0", advantage=0.0, filtered=True)])
    output = tmp_path / "report.html"
    assert run_command(str(run.path), "--output", str(output), "--max-mb", "1") == 0
    assert output.stat().st_size <= 1_000_000
    index = blocks(output)["index"]
    kept = {tuple(place[:4]) for place in index["places"]}
    assert (0, 0, 1, 0) in kept
    assert (0, 0, 0, 3) not in kept
    assert len(index["records"]) == 13
    assert index["without_text"] == 13 - len(kept) > 0
    assert f"{index['without_text']} of 13 samples are excluded by --max-mb 1" in capsys.readouterr().err


def test_a_full_disk_keeps_the_old_report(
    make_run: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    (run.path / "report.html").write_text("the old one")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in failure(capsys, str(run.path))
    assert (run.path / "report.html").read_text() == "the old one"
    assert [path.name for path in run.path.glob(".*")] == []


def test_a_run_without_samples_is_refused(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run([], [])
    assert "has no samples yet" in failure(capsys, str(run.path))


def test_a_missing_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no run" in failure(capsys, str(tmp_path / "none"))


def test_a_run_without_recipe_is_refused(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    (run.path / "recipe.yaml").unlink()
    assert "has no recipe.yaml" in failure(capsys, str(run.path))


def test_a_run_of_a_newer_version_is_refused(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    (run.path / "provenance.json").write_text('{"kernelrl": "9.0"}')
    assert "was written by kernelrl 9.0" in failure(capsys, str(run.path))


def test_a_damaged_last_row_is_skipped(make_run: Make, tmp_path: Path) -> None:
    run = make_run()
    with run.journal_path("samples").open("a") as stream:
        stream.write('{"sample": "1.0.')
    assert write_report(run, tmp_path / "report.html", 1_000_000).samples == 9


def test_an_earlier_damaged_row_is_named(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    path = run.journal_path("samples")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:2], "damage\n", *lines[2:]]))
    assert f"{path}:3: the line is not a JSON object" in failure(capsys, str(run.path))


def test_a_row_that_is_no_sample_is_named(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    path = run.journal_path("samples")
    path.write_text('{"sample": "0.0.0.0"}\n' + path.read_text())
    assert f"{path}:1: task_id is missing" in failure(capsys, str(run.path))


def test_a_read_only_run_needs_an_output(
    make_run: Make, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run()
    # Root may write everywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != run.path)
    assert "--output FILE" in failure(capsys, str(run.path))
    assert run_command(str(run.path), "--output", str(tmp_path / "report.html")) == 0


def test_a_directory_that_does_not_exist_is_refused(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run()
    assert "does not exist" in failure(capsys, str(run.path), "--output", "none/report.html")


def test_a_run_of_a_former_version_is_read(tmp_path: Path) -> None:
    run = RunDir(REPOSITORY / "tests/data/former_run/killed")
    assert write_report(run, tmp_path / "report.html", 1_000_000).samples > 20

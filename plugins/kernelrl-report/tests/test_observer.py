"""A run observed from its files: new rows once, alarms, findings, slowest evaluations; damaged and replaced files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.api.errors import KernelRLError, UsageError
from kernelrl_core.api.runs import JournalReader, RunDir, find_run
from kernelrl_report.observer import RunObserver
from kernelrl_testing.core import sample_row
from kernelrl_testing.values import make_turn


def append(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


def step(number: int, **metrics: float) -> dict[str, Any]:
    return {"step": number, "progress/done_frac": (number + 1) / 20, "time/total": 1.0, **metrics}


def sample(name: str, run_s: float = 0.1, **more: Any) -> dict[str, Any]:
    evaluation = {"seconds": {"build": 0.5, "run": run_s, "wait": 9.0}, "provenance": more.pop("provenance", {})}
    row = sample_row(make_turn()) | {"sample": name, "task_id": "t", "findings": []}
    return row | {"evaluation": row["evaluation"] | evaluation} | more


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "recipe.yaml").write_text("train: {steps: 20}\ncost: {budget_usd: 3}\n")
    (tmp_path / "state.json").write_text('{"state": "finished"}')
    return tmp_path


# --- the reader of rows ---


def test_a_reader_returns_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    reader = JournalReader(path)
    assert [row for _, row in reader.new_rows()] == []
    append(path, {"n": 1}, {"n": 2})
    assert [row for _, row in reader.new_rows()] == [{"n": 1}, {"n": 2}]
    append(path, {"n": 3})
    assert [row for _, row in reader.new_rows()] == [{"n": 3}]
    assert [row for _, row in reader.new_rows()] == []


def test_an_incomplete_last_line_is_read_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\n{"n":')
    reader = JournalReader(path)
    assert [row for _, row in reader.new_rows()] == [{"n": 1}]
    with path.open("a") as file:
        file.write(" 2}\n")
    assert [row for _, row in reader.new_rows()] == [{"n": 2}]


def test_a_damaged_last_line_that_resume_cuts_off_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"n": 1}\nxx\n')
    reader = JournalReader(path)
    assert [row for _, row in reader.new_rows()] == [{"n": 1}]
    path.write_text('{"n": 1}\n{"n": 2}\n')
    assert [row for _, row in reader.new_rows()] == [{"n": 2}]


def test_damage_between_two_reads_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, {"n": 1}, {"n": 2})
    reader = JournalReader(path)
    [row for _, row in reader.new_rows()]
    with path.open("a") as file:
        file.write('xx\n{"n": 4}\n')
    with pytest.raises(KernelRLError, match=r"a\.jsonl:3: the line is not a JSON object"):
        [row for _, row in reader.new_rows()]


def test_a_shorter_file_counts_as_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append(path, {"n": 1}, {"n": 2})
    reader = JournalReader(path)
    [row for _, row in reader.new_rows()]
    assert not reader.replaced()
    path.write_text('{"n": 9}\n')
    assert reader.replaced()


# --- the observer ---


def test_an_update_returns_the_new_steps_only(run: Path) -> None:
    observer = RunObserver(RunDir(run))
    append(run / "metrics.jsonl", step(0), step(1))
    assert [row["step"] for row in observer.update()] == [0, 1]
    append(run / "metrics.jsonl", step(2))
    assert [row["step"] for row in observer.update()] == [2]
    assert len(observer.rows) == 3


def test_budget_and_steps_are_those_of_the_recipe(run: Path) -> None:
    observer = RunObserver(RunDir(run))
    observer.update()
    assert (observer.budget_usd, observer.steps_total) == (3.0, 20)


def test_alarms_are_those_that_the_run_prints(run: Path) -> None:
    append(run / "metrics.jsonl", *(step(n, truncated_rate=0.0 if n < 8 else 0.5) for n in range(12)))
    observer = RunObserver(RunDir(run))
    observer.update()
    assert [number for number, _ in observer.alarms] == [9]
    assert observer.alarms[0][1].startswith("alarm: replies truncated at the token limit: 20% in the last 5 steps")


def test_a_retried_turn_counts_with_its_last_row(run: Path) -> None:
    hack = {"rule": "no_kernel", "severity": "suspect", "evidence": ""}
    append(run / "samples.jsonl", sample("0.0.0.0", findings=[hack], verdict="suspect"))
    observer = RunObserver(RunDir(run))
    observer.update()
    assert (observer.findings, observer.suspects) == ({"no_kernel": 1}, 1)
    append(run / "samples.jsonl", sample("0.0.0.0"))
    observer.update()
    assert (observer.findings, observer.suspects) == ({}, 0)


def test_a_note_is_not_counted_as_a_finding(run: Path) -> None:
    append(run / "samples.jsonl", sample("0.0.0.0", findings=[{"rule": "remark", "severity": "note", "evidence": ""}]))
    observer = RunObserver(RunDir(run))
    observer.update()
    assert observer.findings == {}


def test_slowest_evaluations_exclude_waiting_and_cached_ones(run: Path) -> None:
    append(run / "samples.jsonl", *(sample(f"0.0.0.{n}", run_s=n) for n in range(30)))
    append(run / "samples.jsonl", sample("1.0.0.0", run_s=99, provenance={"cached": True}))
    append(run / "eval_samples.jsonl", sample("0.0.0.0", run_s=50))
    observer = RunObserver(RunDir(run))
    observer.update()
    assert [(slow.sample, slow.seconds) for slow in observer.slowest[:2]] == [
        ("eval 0.0.0.0", 50.5),
        ("0.0.0.29", 29.5),
    ]
    assert len(observer.slowest) == 20


def test_a_run_that_was_replaced_is_read_from_its_start(run: Path) -> None:
    append(run / "metrics.jsonl", step(0), step(1))
    observer = RunObserver(RunDir(run))
    observer.update()
    (run / "metrics.jsonl").write_text(json.dumps(step(0)) + "\n")
    assert len(observer.update()) == 1
    assert len(observer.rows) == 1


def test_a_run_without_journals_has_no_rows(run: Path) -> None:
    observer = RunObserver(RunDir(run))
    assert observer.update() == []
    assert (observer.state, observer.samples, observer.slowest) == ("finished", 0, [])


@pytest.mark.parametrize("text", ["", "[1]", "train: 3\ncost: [", "cost: {budget_usd: much}"])
def test_a_damaged_recipe_hides_the_budget_only(run: Path, text: str) -> None:
    (run / "recipe.yaml").write_text(text)
    observer = RunObserver(RunDir(run))
    assert observer.update() == []
    assert observer.budget_usd is None


# --- versions ---


@pytest.mark.parametrize("version", ["99.0.0", "0.99.1"])
def test_a_run_of_a_newer_version_is_refused_with_the_fix(run: Path, version: str) -> None:
    (run / "provenance.json").write_text(json.dumps({"kernelrl": version}))
    with pytest.raises(UsageError, match=f"was written by kernelrl {version}, and this is") as caught:
        find_run(str(run))
    assert "pip install --upgrade" in caught.value.fix
    assert find_run(str(run), damaged=True).path == run


@pytest.mark.parametrize("provenance", ["", "{}", '{"kernelrl": "0.0.1"}', '{"kernelrl": "a.b"}', "[]"])
def test_other_runs_are_found(run: Path, provenance: str) -> None:
    (run / "provenance.json").write_text(provenance)
    assert find_run(str(run)).path == run

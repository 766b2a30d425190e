"""The keys that readers of journals need: real rows have them, and a row without one is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.algorithms.credit import Credit
from kernelrl_core.errors import KernelRLError
from kernelrl_core.monitoring.progress import Progress
from kernelrl_core.runs.journal import Journal, JournalReader, read_rows
from kernelrl_core.runs.row_shapes import PROGRESS, SAMPLE, SHAPES, fault
from kernelrl_core.runs.rows import sample_row
from kernelrl_testing.values import make_turn, turns_of_every_outcome

FORMER = Path(__file__).parents[1] / "data" / "former_run" / "killed"


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The row of a correct turn, after a change."""
    row: dict[str, Any] = json.loads(json.dumps(sample_row(make_turn())))
    change(row)
    return row


@pytest.mark.parametrize("journal", SHAPES)
def test_rows_of_a_former_version_have_the_shape(journal: str) -> None:
    rows = [json.loads(line) for line in (FORMER / f"{journal}.jsonl").read_text().splitlines()]
    assert {fault(row, SHAPES[journal]) for row in rows} == {""}


def test_rows_of_every_outcome_have_the_shape() -> None:
    turns = turns_of_every_outcome()
    assert {fault(sample_row(turn), SAMPLE) for turn in turns} == {""}
    assert {fault(Credit(turn, *result).row(), SHAPES["credits"]) for turn in turns for result in ((), (1.0, 0.5))} == {
        ""
    }


def test_the_progress_of_every_phase_has_the_shape() -> None:
    for progress in (Progress("start"), Progress("step 1", total=8), Progress("step 1", total=8, done=2, began=0.0)):
        assert fault(progress.facts(), PROGRESS) == ""


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda row: row.pop("outcome"), "outcome is missing"),
        (lambda row: row.update(step="0"), "step must be a whole number"),
        (lambda row: row.update(score=1.0), "score must be a mapping"),
        (lambda row: row["score"].update(total=None), "score.total must be a number"),
        (lambda row: row["score"]["parts"].update(correct="1"), "score.parts.correct must be a number"),
        (lambda row: row["prompt"].update(messages={}), "prompt.messages must be a list"),
        (lambda row: row["prompt"]["messages"].append({"role": "user"}), "prompt.messages[0].content is missing"),
        (lambda row: row.update(findings=[{"rule": "a"}]), "findings[0].severity is missing"),
        (lambda row: row["evaluation"].pop("seconds"), "evaluation.seconds is missing"),
        (lambda row: row["evaluation"].update(runtime={"n": 1}), "evaluation.runtime.median_us is missing"),
        (lambda row: row.update(evaluation=None), "evaluation must be a mapping"),
        (lambda row: row["extraction"].update(candidate=None), "extraction.candidate must be a mapping"),
        (lambda row: row.update(outcome="incorrect", evaluation=None), ""),
        (lambda row: row.update(of_the_future=1), ""),
    ],
)
def test_the_first_difference_is_named_with_its_path(change: Callable[[dict[str, Any]], object], found: str) -> None:
    assert fault(changed(change), SAMPLE) == found


def test_every_metric_must_be_a_number() -> None:
    row = {"step": 0, "time/total": 1, "progress/done_frac": 0.5, "reward/mean": 0.1}
    assert fault(row, SHAPES["metrics"]) == ""
    assert fault(row | {"reward/mean": "high"}, SHAPES["metrics"]) == "reward/mean must be a number"


# --- as damage of a journal ---


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_an_earlier_row_without_a_key_is_named_and_the_last_one_skipped(tmp_path: Path) -> None:
    whole, without = sample_row(make_turn()), changed(lambda row: row.pop("verdict"))
    assert list(read_rows(write(tmp_path / "samples.jsonl", whole, without))) == [whole]
    with pytest.raises(KernelRLError, match=r"samples\.jsonl:2: verdict is missing") as caught:
        list(read_rows(write(tmp_path / "samples.jsonl", whole, without, whole)))
    assert "restore the file from a copy" in caught.value.fix


def test_a_last_row_without_a_key_is_moved_to_another_file_when_the_run_continues(tmp_path: Path) -> None:
    path = write(tmp_path / "begun.jsonl", {"purpose": "train", "sample": "0.0.0.0"}, {"purpose": "train"})
    journal = Journal(path)
    journal.append([{"purpose": "train", "sample": "0.0.1.0"}])
    journal.close()
    assert [row["sample"] for row in read_rows(path)] == ["0.0.0.0", "0.0.1.0"]
    assert (tmp_path / "begun.jsonl.damaged").read_text().strip() == '{"purpose": "train"}'


def test_a_row_that_loses_a_key_after_it_was_read_is_reported(tmp_path: Path) -> None:
    path = write(tmp_path / "begun.jsonl", {"purpose": "train", "sample": "0.0.0.0"})
    reader = JournalReader(path)
    ((offset, _),) = reader.new_rows()
    write(path, {"purpose": "train"})
    with pytest.raises(KernelRLError, match="was changed while it was read"):
        reader.rows_at([offset])


def test_other_files_may_have_any_rows(tmp_path: Path) -> None:
    assert list(read_rows(write(tmp_path / "prices.jsonl", {"n": 1}))) == [{"n": 1}]

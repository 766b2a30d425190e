"""The expected duration of a run, from earlier runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.planning.duration import duration_text, expected_duration, header_entries
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.rows import sample_row
from kernelrl_testing.values import make_turn

RECIPE = {"policy": {"use": "fake"}, "episode": {"turns": 1}}
PLAN = {"turns": 1, "samples": 100, "held_out_samples": 0}


def finished(path: Path, recipe: dict[str, Any], samples: int, seconds: float, start: float = 0.0) -> RunDir:
    """A run of one step."""
    run = RunDir.create(path, recipe, {})
    metrics = {"step": 0, "progress/done_frac": 1.0, "time/total": seconds, "time/start": start}
    run.journal_path("metrics").write_text(json.dumps(metrics) + "\n")
    run.journal_path("samples").write_text((json.dumps(sample_row(make_turn())) + "\n") * samples)
    return run


def test_the_time_of_the_steps_grows_with_the_samples_and_the_start_does_not(tmp_path: Path) -> None:
    run = finished(tmp_path / "a", RECIPE, 10, 30.0, start=7.0)
    assert expected_duration(RECIPE, PLAN, [run]) == {"seconds": 307, "seconds_from": str(run.path)}


def test_the_latest_comparable_run_counts(tmp_path: Path) -> None:
    runs = [
        finished(tmp_path / "old", RECIPE, 10, 20.0),
        finished(tmp_path / "new", RECIPE, 10, 30.0),
        finished(tmp_path / "other_policy", {**RECIPE, "policy": {"use": "other"}}, 10, 1.0),
        finished(tmp_path / "more_turns", {**RECIPE, "episode": {"turns": 2}}, 10, 1.0),
        finished(tmp_path / "without_samples", RECIPE, 0, 1.0),
        RunDir(tmp_path / "missing"),
    ]
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "recipe.yaml").write_text("episode: 3\npolicy: {use: fake}\n")
    assert expected_duration(RECIPE, PLAN, [*runs, RunDir(tmp_path / "damaged")])["seconds_from"].endswith("new")


def test_a_held_out_evaluation_without_earlier_times_is_unknown(tmp_path: Path) -> None:
    run = finished(tmp_path / "a", RECIPE, 10, 30.0)
    assert expected_duration(RECIPE, {**PLAN, "held_out_samples": 5}, [run])["seconds"] is None


@pytest.mark.parametrize(
    ("seconds", "header", "text"),
    [
        (90, "", "about 90 s, from the times of runs/a"),
        (600, "", "about 10 min, from the times of runs/a"),
        (9000, "", "about 2.5 h, from the times of runs/a"),
        (None, "2 hours on one GPU.", "unknown on this machine; its header: 2 hours on one GPU."),
        (None, "", "unknown: no earlier run to compare with"),
    ],
)
def test_the_duration_in_words(seconds: int | None, header: str, text: str) -> None:
    assert duration_text({"seconds": seconds, "seconds_from": "runs/a"}, header) == text


def test_needs_and_costs_are_the_first_sentences_of_their_entries_in_the_header(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "# a: one.\n# Needs  a GPU of\n#        24 GB. More is faster.\n# Other  thing.\n# Costs  nothing\nseed: 1\n",
        encoding="utf-8",
    )
    assert header_entries(tmp_path / "a.yaml") == {"needs": "a GPU of 24 GB.", "costs": "nothing", "tests": ""}

"""The expected duration of a run, from earlier runs."""

from __future__ import annotations

from pathlib import Path

from kernelrl_core.planning.duration import expected_duration
from kernelrl_core.runs.directory import RunDir


def test_a_run_without_a_recipe_is_passed_over(tmp_path: Path) -> None:
    assert expected_duration({}, {}, [RunDir(tmp_path / "damaged")])["seconds"] is None

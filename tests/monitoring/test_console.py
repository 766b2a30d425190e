"""Console output."""

from __future__ import annotations

import pytest

from kernelrl_core.monitoring.console import Console, step_line


def test_markup_in_a_line_is_printed_literally(capsys: pytest.CaptureFixture[str]) -> None:
    text = "training run 'a:train:0' [bold] is not loaded"
    Console().show(text)
    assert capsys.readouterr().err == f"{text}\n"


@pytest.mark.parametrize(
    ("metrics", "reason"),
    [({}, "all advantages zero"), ({"train/rejected": 1.0}, "all training samples rejected by train.mismatch")],
)
def test_the_line_of_a_step_names_why_its_update_was_skipped(metrics: dict[str, float], reason: str) -> None:
    line = step_line({"step": 0, "time/total": 1.0, "train/skipped": 1.0, **metrics}, 2)
    assert f"{reason}; update skipped" in line

"""Console output."""

from __future__ import annotations

import pytest

from kernelrl_core.monitoring.console import Console, step_line
from kernelrl_core.monitoring.events import PhaseStarted, TurnFinished
from kernelrl_core.testing.values import make_turn
from kernelrl_core.types import Outcome


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


def test_a_warning_is_part_of_the_progress_until_the_next_sample() -> None:
    console = Console()
    console.handle(PhaseStarted("step 1", 4))
    console.warn("warning: the first build takes longer")
    assert console.progress()["detail"] == "warning: the first build takes longer"
    console.handle(TurnFinished(make_turn(Outcome.CORRECT), "train", {}))
    assert console.progress()["detail"] == ""

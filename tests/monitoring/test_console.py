"""Console output."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console as Terminal

from kernelrl_core.monitoring import console as module
from kernelrl_core.monitoring.console import Console, step_line
from kernelrl_core.monitoring.events import PhaseStarted, StepFinished, TurnFinished
from kernelrl_core.types import Outcome, SampleId
from kernelrl_testing.values import make_turn


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


def test_without_a_terminal_the_progress_is_printed_and_recorded_again_and_again(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LINE_EVERY_S", 0.01)
    recorded: list[Mapping[str, Any]] = []

    async def scene() -> None:
        enough = asyncio.Event()
        loop = asyncio.get_running_loop()

        def record(facts: Mapping[str, Any]) -> None:
            recorded.append(facts)
            if len(recorded) == 3:
                loop.call_soon_threadsafe(enough.set)

        console = Console(record)
        reporting = asyncio.create_task(console.keep_reporting())
        console.handle(PhaseStarted("step 1", 4))
        console.handle(TurnFinished(make_turn(Outcome.CORRECT), "train", {}))
        await enough.wait()
        reporting.cancel()

    asyncio.run(scene())
    assert recorded[0]["phase"] == "step 1"
    assert "step 1: 0 s; 1 of at most 4 samples, 100% correct" in capsys.readouterr().err


def test_turns_of_a_step_that_is_sampled_during_an_evaluation_count_for_that_step() -> None:
    console = Console()
    console.handle(PhaseStarted("step 3", 4, "train", 3))
    console.handle(PhaseStarted("evaluating held_out", 2, "eval", 3))
    training, held_out = (make_turn(Outcome.CORRECT, id=SampleId(3, 0, 0, turn)) for turn in (0, 1))
    for turn, purpose in ((training, "train"), (held_out, "eval"), (training, "train"), (training, "train")):
        console.handle(TurnFinished(turn, purpose, {}))
    assert (console.progress()["phase"], console.progress()["samples"]) == ("evaluating held_out", 1)
    console.handle(TurnFinished(held_out, "eval", {}))
    assert (console.progress()["phase"], console.progress()["samples"]) == ("step 3", 3)
    console.handle(StepFinished({"step": 2, "time/total": 1.0}, (), 4))
    assert (console.progress()["phase"], console.progress()["samples"]) == ("step 3", 3)


def test_a_terminal_shows_a_bar_until_the_step_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    terminal = Terminal(file=shown, force_terminal=True, width=120, color_system=None)
    monkeypatch.setattr(module, "RichConsole", lambda **options: terminal)
    console = Console()
    console.handle(PhaseStarted("step 1", 2))
    console.handle(TurnFinished(make_turn(Outcome.INCORRECT), "train", {}))
    console.handle(StepFinished({"step": 0, "time/total": 1.0}, (), 2))
    assert "step 1" in shown.getvalue()
    assert "step 0 (1 of 2)" in shown.getvalue().splitlines()[-1]

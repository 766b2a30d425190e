"""Progress of a phase, in numbers and in words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

import pytest

from kernelrl_core.monitoring import console as console_module
from kernelrl_core.monitoring.console import Console
from kernelrl_core.monitoring.events import PhaseStarted, TurnFinished
from kernelrl_core.monitoring.progress import Progress, progress_text
from kernelrl_core.types import Outcome
from kernelrl_testing.values import make_turn
from kernelrl_testing.waiting import wait_until_async


def test_rate_and_time_left_follow_from_the_finished_samples() -> None:
    # 10 samples in 5 s: 2 per second; 30 are left: 15 s.
    facts = Progress("step 3", 40, done=10, correct=4, began=time.monotonic() - 5).facts()
    assert facts["samples_per_s"] == pytest.approx(2.0, rel=0.05)
    assert facts["left_s"] == pytest.approx(15.0, rel=0.05)
    assert progress_text({**facts, "seconds": 5.0, "samples_per_s": 2.0, "left_s": 15.0}) == (
        "step 3: 5 s; 10 of at most 40 samples, 40% correct; 2 samples/s; at most 15 s left"
    )


@pytest.mark.parametrize(("phase", "last"), [("step 3", "; training"), ("evaluating held_out", "")])
def test_after_the_last_sample_a_step_trains(phase: str, last: str) -> None:
    facts = Progress(phase, 40, done=40, correct=10).facts()
    text = f"{phase}: 9 s; 40 of at most 40 samples, 25% correct{last}"
    assert progress_text({**facts, "seconds": 9.0}) == text


def test_a_phase_without_samples_has_its_last_line_and_no_estimate() -> None:
    facts = Progress("start", detail="warm start: step 61 of 600").facts()
    assert (facts["samples_per_s"], facts["left_s"]) == (None, None)
    assert progress_text({**facts, "seconds": 9.0}) == "start: 9 s; warm start: step 61 of 600"


def test_without_a_terminal_the_progress_is_printed_and_recorded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(console_module, "LINE_EVERY_S", 0.02)
    recorded: list[Mapping[str, Any]] = []
    console = Console(recorded.append)

    async def work() -> None:
        reporting = asyncio.create_task(console.keep_reporting())
        console.say("warm start: step 1 of 2")
        await wait_until_async(lambda: recorded and recorded[-1]["detail"])
        console.handle(PhaseStarted("step 1", 4))
        console.handle(TurnFinished(make_turn(Outcome.CORRECT), "train", {}))
        await wait_until_async(lambda: recorded[-1]["samples"])
        reporting.cancel()

    asyncio.run(work())
    assert (recorded[0]["phase"], recorded[0]["detail"]) == ("start", "warm start: step 1 of 2")
    assert (recorded[-1]["phase"], recorded[-1]["samples"]) == ("step 1", 1)
    printed = capsys.readouterr().err
    assert "start: 0 s; warm start: step 1 of 2\n" in printed
    assert "step 1: 0 s; 1 of at most 4 samples, 100% correct" in printed

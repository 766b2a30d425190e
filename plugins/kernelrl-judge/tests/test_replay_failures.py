"""A driver error while a recording is replayed: the candidate's, and the end of its runner."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kernelrl_core.types import Evaluation, EvaluationSettings, Outcome
from kernelrl_judge.judge.outcome import Endings
from kernelrl_judge.peer.dialogue import Dialogue
from kernelrl_judge.peer.replay import ReplayFailed


class Device:
    """The runner and the device lease of a case."""

    def __init__(self) -> None:
        self.deadline = 0.0
        self.ends = 0

    def end(self) -> None:
        self.ends += 1

    def shared(self) -> Any:
        return contextlib.nullcontext(self)


@pytest.mark.parametrize("code", [700, 716, 1, -5])
def test_a_driver_error_is_a_runtime_error_and_ends_the_runner(code: int) -> None:
    device: Any = Device()
    dialogue = Dialogue(device, lambda asked: (b"", []), "cuda", device, lambda: None, {})

    def judge() -> Evaluation:
        with dialogue.turn(alone=False):
            raise ReplayFailed(code)

    assert Endings(EvaluationSettings(), "cuda", {}).of(judge).outcome is Outcome.RUNTIME_ERROR
    assert device.ends == 1

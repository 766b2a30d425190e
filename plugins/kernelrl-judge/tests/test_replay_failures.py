"""A driver error while a recording is replayed: a runtime error of the candidate, and the end of its runner."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from kernelrl_core.api.tasks import Outcome
from kernelrl_judge.judge import conclusion
from kernelrl_judge.judge.candidate_run import Interruption
from kernelrl_judge.peer.lease import CandidateLease
from kernelrl_judge.peer.recordings import ReplayFailed
from kernelrl_testing.values import make_request


class Device:
    """The runner of an evaluation, and its device lease."""

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
    lease = CandidateLease(device, device, "cuda", lambda: None)
    with pytest.raises(ReplayFailed) as raised, lease.held(alone=False):
        raise ReplayFailed(code)
    assert isinstance(raised.value, Interruption)
    run: Any = None
    assert conclusion._interrupted(raised.value, make_request(), run).outcome is Outcome.RUNTIME_ERROR
    assert device.ends == 1

"""Tests that hold on a busy machine: waits for a condition, with a deadline, and times of kernels.

A test that sleeps for a guessed time fails where the guess is short and wastes the rest where it is long. The linter
of this repository therefore allows `time.sleep` and `asyncio.sleep` in no test.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

from kernelrl_core.api.evaluators import Evaluation

__all__ = ["DEADLINE_S", "require_times", "takes", "takes_async", "wait_until", "wait_until_async"]

T = TypeVar("T")

DEADLINE_S = 300.0
"""Seconds after which a wait has failed: many times what an idle machine needs."""
_POLL_S = 0.005


class _Process(Protocol):
    def poll(self) -> int | None: ...


def wait_until(
    condition: Callable[[], T], *, process: _Process | None = None, deadline_s: float = DEADLINE_S, what: str = ""
) -> T:
    """Wait until a condition holds, and return its value.

    Args:
        condition: called every few milliseconds until its value is true.
        process: one that the condition depends on; its end before the condition holds ends the wait.
        deadline_s: longest wait.
        what: name of the event, for the message of a failure.

    Raises:
        AssertionError: the deadline has passed, or the process has ended.
    """
    ends = time.monotonic() + deadline_s
    while not (found := condition()):
        if process is not None and (status := process.poll()) is not None:
            # It may have fulfilled the condition just before its end.
            if found := condition():
                break
            raise AssertionError(f"the process ended with {status} before {what or 'the condition held'}")
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {what or 'the condition'}"
        time.sleep(_POLL_S)
    return found


async def wait_until_async(condition: Callable[[], T], *, deadline_s: float = DEADLINE_S, what: str = "") -> T:
    """As `wait_until`, while other tasks of the event loop run.

    Raises:
        AssertionError: the deadline has passed.
    """
    ends = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {what or 'the condition'}"
        await asyncio.sleep(_POLL_S)
    return found


def takes(seconds: float) -> None:
    """Let time pass, as a stand-in for a slow component does, and a test that nothing happens meanwhile.

    No test may wait with it for something that is to happen: that is `wait_until`.
    """
    time.sleep(seconds)


async def takes_async(seconds: float = 0.0) -> None:
    """As `takes`, while other tasks of the event loop run; 0 seconds let each of them run once."""
    await asyncio.sleep(seconds)


def require_times(evaluation: Evaluation) -> None:
    """Fail a test whose kernel was not timed, and skip it where other programs kept the processors busy.

    On a CPU the evaluator then states no times, because none would be right.
    """
    if evaluation.not_timed.startswith("other programs keep the processors busy"):
        pytest.skip(evaluation.not_timed)
    assert evaluation.runtime is not None, evaluation

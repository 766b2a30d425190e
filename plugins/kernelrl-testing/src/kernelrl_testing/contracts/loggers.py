"""The contract of loggers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import calling, require

__all__ = ["LoggerContract"]

_RECIPE = {"train": {"steps": 3}}
_FIX_EVENT = "accept every event with values that are numbers, text or None"
_FIX_HELD = "return the last step that the logger holds, -1 for none, or None to get the steps from first_step"


class LoggerContract(ComponentContract):
    """A logger takes every event of a run and of its continuation, waits for nothing, and changes no row."""

    kind = "loggers"
    max_ms: ClassVar[float] = 100.0
    """Wall time of an event, except `start` and `finish`; the least of five calls counts."""

    def rows(self) -> Mapping[str, Any]:
        """A row for each event: `turn`, `credits`, `step`, `evaluation`."""
        turn = {"sample": "0.0.0.0", "task": "task", "outcome": "correct", "score": {"total": 1.0}, "seconds": {}}
        credit = {"sample": "0.0.0.0", "step": 0, "reward": 1.0, "return": 1.0, "advantage": 0.5, "speedup": None}
        included = {"masked": False, "filtered": False, "reason": ""}
        return {
            "turn": turn,
            "credits": [credit | included],
            "step": {"step": 0, "reward/mean": 0.5, "train/kl": None, "kernel/correct": 1},
            "evaluation": {"step": 0, "eval/pass@1": 0.5},
        }

    def test_takes_every_event(self, tmp_path: Path) -> None:
        self.require_prerequisites()
        rows = self.rows()
        before = copy.deepcopy(rows)
        ends: tuple[Literal["stopped", "failed", "finished"], ...] = ("stopped", "failed", "finished")
        for first_step, state in enumerate(ends):
            logger, held = self._started(tmp_path, first_step)
            expected = (None, -1 if first_step == 0 else 0)
            require(held in expected, f"start returns {held!r}, the last step is {expected[1]}", _FIX_HELD)
            for event, row in rows.items():
                _call(logger, event, row)
            _call(logger, "finish", state)
        require(rows == before, "a row is changed", "copy the row before the change: other loggers get the same row")

    def test_a_run_that_was_killed_continues(self, tmp_path: Path) -> None:
        self.require_prerequisites()
        rows = self.rows()
        logger, _ = self._started(tmp_path, 0)
        for step in range(2):
            _call(logger, "step", {**rows["step"], "step": step})
        resumed, held = self._started(tmp_path, 1)
        fix = f"flush each step where another process reads it; {_FIX_HELD}"
        require(held is None or held in (-1, 0, 1), f"start after a kill returns {held!r}, the last step is 1", fix)
        for step in range(1 if held is None else held + 1, 3):
            _call(resumed, "step", {**rows["step"], "step": step})
        _call(resumed, "finish", "finished")
        logger, held = self._started(tmp_path, 3)
        require(held in (None, 2), f"start of a finished run returns {held!r}, the last step is 2", _FIX_HELD)
        _call(logger, "finish", "finished")

    def test_events_do_not_block(self, tmp_path: Path) -> None:
        self.require_prerequisites()
        rows = self.rows()
        logger, _ = self._started(tmp_path, 0)
        for event, row in rows.items():
            each = [{**row, "step": step} if "step" in row else row for step in range(5)]
            taken_ms = min(_milliseconds(partial(_call, logger, event, one)) for one in each)
            message = f"{event} takes {taken_ms:.0f} ms, the limit is {self.max_ms:.0f} ms"
            fix = "write locally or hand over to a thread; wait for a network in finish only"
            require(taken_ms <= self.max_ms, message, fix)
        _call(logger, "finish", "finished")

    def _started(self, folder: Path, first_step: int) -> tuple[Any, Any]:
        logger = self.make()
        with calling("start", "create what the logger writes in run_dir, also where an earlier process has done so"):
            return logger, logger.start(folder, _RECIPE, first_step)


def _call(logger: Any, event: str, argument: object) -> None:
    with calling(event, _FIX_EVENT):
        getattr(logger, event)(argument)


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - began)

"""Records the turns of a run: journal row, cost, event."""

from __future__ import annotations

from typing import Literal

from kernelrl_core.monitoring.costs import spent_on_turn
from kernelrl_core.monitoring.events import TurnFinished
from kernelrl_core.monitoring.monitor import Monitor
from kernelrl_core.runs.run_journal import RunJournal
from kernelrl_core.types import SampleId, Turn

__all__ = ["RunRecorder"]


class RunRecorder:
    """The recorder of a run that is trained; see `rollout.episode.Recorder`."""

    def __init__(self, journal: RunJournal, monitor: Monitor) -> None:
        self._journal, self._monitor = journal, monitor

    def require_budget(self) -> None:
        self._monitor.meter.check()

    async def begin(self, purpose: Literal["train", "eval"], where: SampleId) -> None:
        await self._journal.begin(purpose, where)

    async def record(self, purpose: Literal["train", "eval"], turn: Turn) -> None:
        row = await (self._journal.record_sample(turn) if purpose == "train" else self._journal.record_eval(turn))
        self._monitor.meter.add(spent_on_turn(turn))
        self._monitor.publish(TurnFinished(turn, purpose, row))

"""The monitoring of one run: subscribers to its events, and the meters that add to its metrics.

Subscribers (console, loggers) only receive events. The meters of cost, time and alarms add metrics to the row of a step
before it is committed; their state is saved in checkpoints or read back from the journals.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernelrl_core.monitoring.alarms import Alarms
from kernelrl_core.monitoring.costs import CostMeter
from kernelrl_core.monitoring.events import Event, StepFinished, Subscriber
from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.types import Group

__all__ = ["Monitor"]


class Monitor:
    """Publishes the events of a run, and measures time, cost and alarms.

    Args:
        subscribers: receive every event.
        meter: adds up the cost of the run.
        timeline: records the activities of the run.
        say: prints a line for the user.
        began: value of `time.monotonic` when this process started to work on the run; None: now.
    """

    def __init__(
        self,
        subscribers: Iterable[Subscriber],
        meter: CostMeter,
        timeline: Timeline,
        say: Callable[[str], None],
        began: float | None = None,
    ) -> None:
        self.meter, self.say = meter, say
        self._subscribers, self._timeline = tuple(subscribers), timeline
        self._alarms = Alarms()
        self._since = time.monotonic()
        self._began = self._since if began is None else began
        self._start: dict[str, float] = {}

    def publish(self, event: Event) -> None:
        """Pass an event to the subscribers. A finished step may raise alarms."""
        for subscriber in self._subscribers:
            subscriber.handle(event)
        if isinstance(event, StepFinished):
            for line in self._alarms.after(event.metrics):
                self.say(f"{line}; evidence: samples.jsonl of the run")

    def measure(self, groups: Sequence[Group]) -> dict[str, float]:
        """The `collapse/*` metrics of a step."""
        return self._alarms.measure(groups)

    def start_clock(self) -> None:
        """Start the time measurement of the first step; the time before it becomes `time/start`."""
        self._since = time.monotonic()
        self._start = {"time/start": self._since - self._began}

    def book(self) -> dict[str, float]:
        """The `time/*` and `cost/*` metrics since the last call."""
        begin, self._since = self._since, time.monotonic()
        shares = self._timeline.shares(begin, self._since)
        row = {f"time/in_{kind}": seconds for kind, seconds in shares.items()}
        start, self._start = self._start, {}
        return row | start | {"time/total": self._since - begin, **self.meter.book()}

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        return self._alarms.state()

    def restore(self, loop: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]]) -> None:
        """Continue from the loop state of a checkpoint and the metrics of the steps before it."""
        for row in metrics:
            self._alarms.after(row)
        self._alarms.restore(loop)

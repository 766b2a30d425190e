"""The monitoring of one run: subscribers to its events, and the meters that add to its metrics.

Subscribers (console, loggers) only listen. The meters of cost, time and alarms add to the metrics row of a step before
it is committed; what they remember is kept in checkpoints or read back from the journals.
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
    """Watches a run.

    Args:
        subscribers: get every event.
        meter: of the run's cost.
        timeline: of the run's phases.
        say: shows a line to the user.
    """

    def __init__(
        self, subscribers: Iterable[Subscriber], meter: CostMeter, timeline: Timeline, say: Callable[[str], None]
    ) -> None:
        self.meter, self.say = meter, say
        self._subscribers, self._timeline = tuple(subscribers), timeline
        self._alarms = Alarms()
        self._since = time.monotonic()

    def publish(self, event: Event) -> None:
        """Give an event to the subscribers; a finished step may raise alarms."""
        for subscriber in self._subscribers:
            subscriber.handle(event)
        if isinstance(event, StepFinished):
            for line in self._alarms.after(event.metrics):
                self.say(f"{line}; samples.jsonl of the run holds the evidence")

    def measure(self, groups: Sequence[Group]) -> dict[str, float]:
        """Metrics of a step that show a collapse."""
        return self._alarms.measure(groups)

    def start_clock(self) -> None:
        """The time of the first step counts from here."""
        self._since = time.monotonic()

    def book(self) -> dict[str, float]:
        """Time and cost since the last call, under `time/` and `cost/`."""
        begin, self._since = self._since, time.monotonic()
        shares = self._timeline.shares(begin, self._since)
        row = {f"time/in_{kind}": seconds for kind, seconds in shares.items()}
        return row | {"time/total": self._since - begin, **self.meter.book()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return self._alarms.state()

    def restore(self, loop: Mapping[str, Any], metrics: Iterable[Mapping[str, Any]]) -> None:
        """Continue from the loop state of a checkpoint and the metrics of the steps before it."""
        for row in metrics:
            self._alarms.after(row)
        self._alarms.restore(loop)

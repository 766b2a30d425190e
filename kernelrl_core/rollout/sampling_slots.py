"""Which attempt is sampled next while fewer replies may be drawn at once than attempts wait.

A step is over when its slowest attempt is. So the attempt with the longest expected rest goes first: the turns that are
left, times what its turns, those of its task and those of its step took so far. A reply that is being drawn for longer
than the turns of its task take tells as much of the task already: were only those counted that have ended, a slow task
would look like a fast one until late. Nothing is known beforehand, and nothing but time depends on the order.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import attrs

from kernelrl_core.monitoring.timeline import Timeline
from kernelrl_core.types import SampleId

__all__ = ["SamplingSlots"]

_OWN, _TASK = 2.0, 4.0
"""Turns that count as much as what is known of the task, and of the step: a mean of few turns says little."""


@attrs.define
class _Mean:
    total: float = 0.0
    n: int = 0

    def drawn_to(self, prior: float, weight: float) -> float:
        return (self.total + weight * prior) / (self.n + weight)


@attrs.frozen(eq=False)
class _Request:
    """A reply that waits for a slot or holds one. Training and held-out evaluation use equal sample ids at once."""

    sample: SampleId


class SamplingSlots:
    """Slots for replies that are sampled concurrently.

    Args:
        capacity: number of slots; None: no limit.
        turns: most turns of an episode.
        timeline: records the waiting.
    """

    def __init__(self, capacity: int | None, turns: int, timeline: Timeline) -> None:
        self._timeline = timeline
        self._free = capacity
        self._turns = turns
        self._waiting: dict[_Request, asyncio.Future[None]] = {}
        self._drawn_since: dict[_Request, float] = {}
        self._took: defaultdict[tuple[int, ...], _Mean] = defaultdict(_Mean)
        self._step = -1

    @asynccontextmanager
    async def hold(self, sample: SampleId) -> AsyncIterator[float]:
        """Hold a slot while the reply of `sample` is sampled; gives the seconds waited for it."""
        if self._free is None:
            yield 0.0
            return
        request = _Request(sample)
        with self._timeline.span("waiting") as waited:
            await self._take(request)
        try:
            yield waited.seconds()
        finally:
            self._give(request)

    def observe(self, sample: SampleId, seconds: float) -> None:
        """A turn is over and took so long, its evaluation included and the wait for a slot excluded."""
        if self._free is None:
            return
        if sample.step > self._step:
            self._step = sample.step
            # Of steps long past, the whole is remembered and the parts are not.
            kept = {key: mean for key, mean in self._took.items() if not key or key[0] >= sample.step - 1}
            self._took = defaultdict(_Mean, kept)
        for whole in ((), (sample.step, sample.task_index), (sample.step, sample.task_index, sample.attempt)):
            self._took[whole].total += seconds
            self._took[whole].n += 1

    async def _take(self, request: _Request) -> None:
        place = asyncio.get_running_loop().create_future()
        self._waiting[request] = place
        # A moment later, when all that ask together have asked.
        asyncio.get_running_loop().call_soon(self._serve)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self._give(request)
            raise
        finally:
            del self._waiting[request]

    def _give(self, request: _Request) -> None:
        assert self._free is not None
        self._free += 1
        del self._drawn_since[request]
        self._serve()

    def _serve(self) -> None:
        assert self._free is not None
        waiting = [request for request, place in self._waiting.items() if not place.done()]
        if not waiting or not self._free:
            return
        now = time.monotonic()
        of_tasks = self._of_tasks({(request.sample.step, request.sample.task_index) for request in waiting}, now)
        waiting.sort(key=lambda request: self._urgency(request.sample, of_tasks))
        for request in waiting[: self._free]:
            self._waiting[request].set_result(None)
            self._drawn_since[request] = now
            self._free -= 1

    def _of_tasks(self, tasks: set[tuple[int, int]], now: float) -> dict[tuple[int, int], float]:
        """Seconds that turns of each of these tasks are expected to take."""
        everything = self._took.get((), _Mean()).drawn_to(1.0, 1e-9)
        means = {task: attrs.evolve(self._took.get(task, _Mean())) for task in tasks}
        usual = {task: mean.drawn_to(everything, _TASK) for task, mean in means.items()}
        for request, since in self._drawn_since.items():
            task = (request.sample.step, request.sample.task_index)
            if task in means and now - since > usual[task]:
                means[task].total += now - since
                means[task].n += 1
        return {task: mean.drawn_to(everything, _TASK) for task, mean in means.items()}

    def _urgency(self, sample: SampleId, of_tasks: Mapping[tuple[int, int], float]) -> tuple[int, float, int, int]:
        of_task = of_tasks[sample.step, sample.task_index]
        own = self._took.get((sample.step, sample.task_index, sample.attempt), _Mean()).drawn_to(of_task, _OWN)
        # Of equal ones, one of each task: what tells the tasks apart is known early.
        return sample.step, -own * (self._turns - sample.turn), sample.attempt, sample.task_index

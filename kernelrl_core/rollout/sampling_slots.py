"""Scheduling of sampling slots: which waiting episode is sampled next.

A step ends with its slowest episode, so the episode with the longest expected remaining time is first. Expected
remaining time is the number of remaining turns times the expected duration of a turn, which is estimated from earlier
turns of the episode, the task and the run. A reply that has been sampled for longer than the expected duration counts
with its duration so far; otherwise a slow task would look fast until its first turn ends. The order affects only the
duration of a step, never its results.
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
"""Weights of the priors, in turns: of the task's mean for an episode, and of the run's mean for a task."""


@attrs.define
class _Mean:
    total: float = 0.0
    n: int = 0

    def shrunk_to(self, prior: float, weight: float) -> float:
        return (self.total + weight * prior) / (self.n + weight)


@attrs.frozen(eq=False)
class _Request:
    """A reply that waits for a slot or holds one. Compared by identity, because training and a concurrent held-out
    evaluation use equal sample ids."""

    sample: SampleId


class SamplingSlots:
    """A limited number of sampling slots.

    Args:
        capacity: number of slots; None: no limit.
        turns: maximum number of turns of an episode.
        timeline: records the waiting times.
    """

    def __init__(self, capacity: int | None, turns: int, timeline: Timeline) -> None:
        self._timeline = timeline
        self._free = capacity
        self._turns = turns
        self._waiting: dict[_Request, asyncio.Future[None]] = {}
        self._sampling_since: dict[_Request, float] = {}
        self._took: defaultdict[tuple[int, ...], _Mean] = defaultdict(_Mean)
        self._step = -1

    @asynccontextmanager
    async def hold(self, sample: SampleId) -> AsyncIterator[float]:
        """Hold a slot while the reply of `sample` is sampled; yields the seconds waited for the slot."""
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
        """Report the duration of a finished turn in seconds: sampling and evaluation, without the wait for a slot."""
        if self._free is None:
            return
        if sample.step > self._step:
            self._step = sample.step
            # Keep the means of tasks and episodes for two steps only; the mean of the run stays.
            kept = {key: mean for key, mean in self._took.items() if not key or key[0] >= sample.step - 1}
            self._took = defaultdict(_Mean, kept)
        for key in ((), (sample.step, sample.task_index), (sample.step, sample.task_index, sample.attempt)):
            self._took[key].total += seconds
            self._took[key].n += 1

    async def _take(self, request: _Request) -> None:
        granted = asyncio.get_running_loop().create_future()
        self._waiting[request] = granted
        # Deferred, so that requests made in the same iteration of the event loop are ordered together.
        asyncio.get_running_loop().call_soon(self._serve)
        try:
            await granted
        except asyncio.CancelledError:
            if granted.done() and not granted.cancelled():
                self._give(request)
            raise
        finally:
            del self._waiting[request]

    def _give(self, request: _Request) -> None:
        assert self._free is not None
        self._free += 1
        del self._sampling_since[request]
        self._serve()

    def _serve(self) -> None:
        assert self._free is not None
        waiting = [request for request, granted in self._waiting.items() if not granted.done()]
        if not waiting or not self._free:
            return
        now = time.monotonic()
        of_tasks = self._of_tasks({(request.sample.step, request.sample.task_index) for request in waiting}, now)
        waiting.sort(key=lambda request: self._urgency(request.sample, of_tasks))
        for request in waiting[: self._free]:
            self._waiting[request].set_result(None)
            self._sampling_since[request] = now
            self._free -= 1

    def _of_tasks(self, tasks: set[tuple[int, int]], now: float) -> dict[tuple[int, int], float]:
        """Expected duration in seconds of a turn of each task."""
        overall = self._took.get((), _Mean()).shrunk_to(1.0, 1e-9)
        means = {task: attrs.evolve(self._took.get(task, _Mean())) for task in tasks}
        usual = {task: mean.shrunk_to(overall, _TASK) for task, mean in means.items()}
        for request, since in self._sampling_since.items():
            task = (request.sample.step, request.sample.task_index)
            if task in means and now - since > usual[task]:
                means[task].total += now - since
                means[task].n += 1
        return {task: mean.shrunk_to(overall, _TASK) for task, mean in means.items()}

    def _urgency(self, sample: SampleId, of_tasks: Mapping[tuple[int, int], float]) -> tuple[int, float, int, int]:
        of_task = of_tasks[sample.step, sample.task_index]
        own = self._took.get((sample.step, sample.task_index, sample.attempt), _Mean()).shrunk_to(of_task, _OWN)
        # Ties: one episode of every task first, so that durations of all tasks are known early.
        return sample.step, -own * (self._turns - sample.turn), sample.attempt, sample.task_index

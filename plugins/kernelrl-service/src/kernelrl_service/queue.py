"""The queue of evaluations: accepted once, evaluated in fair shares, kept until someone has the result.

`EvaluationService` of the core evaluates; this module decides the order. It admits as many evaluations as the evaluator
has capacity, and gives the next place to the client with the fewest in progress.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kernelrl_core.api.episodes import EvaluationService, request_key
from kernelrl_core.api.errors import InfrastructureError, StorageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Evaluator, read_response, serve_request, to_json
from kernelrl_service.journal import Journal, Stored
from kernelrl_service.options import Limits
from kernelrl_service.problems import Problem
from kernelrl_service.redaction import Redaction

__all__ = ["Accepted", "EvaluationQueue", "Job", "QueuedEvaluator"]

logger = logging.getLogger(__name__)

_GRACE_S = 2.0
"""Time in which a client whose connection broke can post again before its evaluation is cancelled."""
_RETRY_S = (1, 60)
"""Smallest and largest Retry-After."""
_MEMORY = 0.9
"""Weight of the past in the mean duration of an evaluation."""


@attrs.define(eq=False)
class Job:
    """An evaluation without a stored result."""

    id: str
    request: bytes
    """JSON of the request."""
    owner: str
    """Client whose share it uses."""
    clients: set[str] = attrs.field(factory=set)
    """Clients that submitted it; it counts for each of them."""
    kept_by: set[str] = attrs.field(factory=set)
    """Clients that want the result without being connected."""
    waiting: Counter[str] = attrs.field(factory=Counter)
    """Requests that wait for it, by client."""
    running: bool = False
    task: asyncio.Task[None] | None = None
    done: asyncio.Future[bytes] = attrs.field(factory=lambda: asyncio.get_running_loop().create_future())
    """The response; cancelled with the evaluation."""

    @property
    def wanted(self) -> bool:
        """Whether anyone wants the result."""
        return bool(self.kept_by) or any(count > 0 for count in self.waiting.values())


@attrs.frozen
class Accepted:
    """An accepted request: in progress, or finished before."""

    id: str
    job: Job | None
    response: bytes | None
    """JSON of `serve_request`, if it was finished before."""


class EvaluationQueue:
    """Accepts, orders and finishes evaluations.

    Args:
        service: evaluates; at most `service.capacity` evaluations are in progress.
        observe: called with the response of each evaluation and its duration in seconds.
    """

    def __init__(
        self,
        service: EvaluationService,
        journal: Journal,
        limits: Limits,
        redact: Redaction,
        observe: Callable[[Mapping[str, Any], float], None] = lambda response, seconds: None,
    ) -> None:
        self._service, self._journal, self._limits, self._redact = service, journal, limits, redact
        self._observe = observe
        self._jobs: dict[str, Job] = {}
        self._queues: OrderedDict[str, deque[Job]] = OrderedDict()
        """Jobs that wait for a place, by client; the client that was served last is last."""
        self._n_running: Counter[str] = Counter()
        self._n_unfinished: Counter[str] = Counter()
        self._accepting = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self._mean_s = 1.0
        self.closing = asyncio.Event()
        """Set when the server ends: no request is accepted, and none waits any longer."""

    @property
    def capacity(self) -> int:
        """Number of evaluations that may be in progress."""
        return self._service.capacity

    @property
    def running(self) -> int:
        """Number of evaluations in progress."""
        return self._n_running.total()

    @property
    def queued(self) -> int:
        """Number of evaluations that wait for a place."""
        return len(self._jobs) - self.running

    def require_room(self, client: str, more: int = 1, *, new: int = 1) -> None:
        """Refuse further evaluations above the limits.

        Args:
            more: number of further evaluations of this client.
            new: number of those among them that no other client has submitted.

        Raises:
            Problem: the queue is full, this client has too many unfinished evaluations, or the server closes.
        """
        if self.closing.is_set():
            raise Problem("closing", "the server is closing; accepted evaluations continue when it starts again",
                          retry_after_s=_RETRY_S[0])  # fmt: skip
        if self._n_unfinished[client] + more > self._limits.unfinished_per_client:
            detail = f"{self._n_unfinished[client]} evaluations of this client are unfinished"
            limit = f"the limit is {self._limits.unfinished_per_client}"
            raise Problem("too-many", f"{detail}; {limit}", fix="wait for results", retry_after_s=self._retry_s())
        if len(self._jobs) + new > self._limits.queue:
            detail = f"{len(self._jobs)} evaluations are unfinished; the limit is {self._limits.queue}"
            raise Problem("queue-full", detail, fix="try again later", retry_after_s=self._retry_s())

    async def accept(self, requests: Mapping[str, bytes], client: str, *, keep: bool) -> list[Accepted]:
        """Accept evaluations, all or none. Equal ids are the same evaluation.

        Args:
            requests: id -> JSON of the request.
            keep: True: the evaluations are not cancelled while no request waits for them.

        Raises:
            Problem: they are refused, or the journal cannot be written; nothing was accepted.
        """
        async with self._accepting:
            live = {id_: self._jobs[id_] for id_ in requests if id_ in self._jobs}
            others = {id_: request for id_, request in requests.items() if id_ not in live}
            joined = [id_ for id_, job in live.items() if client not in job.clients]
            if joined:
                self.require_room(client, len(joined), new=0)
            found: Mapping[str, Stored | None] = {}
            if others or joined:
                found = await self._stored_or_accepted(others, joined, client)
            for id_, stored in found.items():
                if stored is None:
                    live[id_] = self._add(id_, requests[id_], client)
            for id_ in live:
                self._join(live[id_], client, keep=keep)
        self._dispatch()
        return [Accepted(id_, live.get(id_), _response(found.get(id_))) for id_ in requests]

    async def _stored_or_accepted(
        self, requests: Mapping[str, bytes], joined: Sequence[str], client: str
    ) -> Mapping[str, Stored | None]:
        """Id -> the stored result, or None for an accepted request.

        Raises:
            Problem: there is no free place for those without a result, or the journal cannot be written.
        """
        own_free = self._limits.unfinished_per_client - self._n_unfinished[client] - len(joined)
        free = 0 if self.closing.is_set() else max(0, min(own_free, self._limits.queue - len(self._jobs)))
        try:
            found = await self._journal.accept(requests, joined, client, free)
        except StorageError as error:
            logger.error("%s", error)
            detail = "the journal cannot be written, so the evaluation was not accepted"
            raise Problem("disk", detail, fix="use another server, or try again later",
                          retry_after_s=_RETRY_S[1]) from error  # fmt: skip
        if found is None:
            self.require_room(client, free + len(joined) + 1, new=free + 1)
            raise AssertionError("the free places are those of the limits")
        return found

    def _add(self, id_: str, request: bytes, owner: str) -> Job:
        job = Job(id_, request, owner)
        self._jobs[id_] = job
        self._queues.setdefault(owner, deque()).append(job)
        return job

    def _join(self, job: Job, client: str, *, keep: bool) -> None:
        if client not in job.clients:
            job.clients.add(client)
            self._n_unfinished[client] += 1
        if keep:
            job.kept_by.add(client)

    async def restore(self) -> int:
        """Continue the accepted evaluations of a former process; their number.

        Raises:
            StorageError: the journal cannot be read.
        """
        unfinished = await self._journal.unfinished()
        for row in unfinished:
            job = self._add(row.id, row.request, row.clients[0])
            for client in row.clients:
                self._join(job, client, keep=True)
        self._dispatch()
        return len(unfinished)

    def job(self, id_: str, client: str) -> Job | None:
        """The unfinished evaluation with this id, if the client has submitted it."""
        found = self._jobs.get(id_)
        return found if found is not None and client in found.clients else None

    async def find(self, id_: str, client: str) -> bytes | None:
        """The stored response of an evaluation that a client has submitted; None if there is none.

        Raises:
            StorageError: the journal cannot be read.
        """
        stored = await self._journal.find(id_, client)
        return stored.response if stored is not None else None

    async def wait(
        self, job: Job, client: str, gone: asyncio.Future[Any] | None, timeout_s: float | None
    ) -> bytes | None:
        """The response of an evaluation; None after the time, or if the client disconnects.

        Args:
            client: name of the client that waits. An evaluation that nobody waits for, and nobody keeps, is cancelled.
            gone: done when the client disconnects; None: it cannot.
            timeout_s: longest wait; None: no limit. After that time the evaluation is kept.

        Raises:
            Problem: the server closes, or the evaluation was cancelled by its client.
        """
        job.waiting[client] += 1
        closing = asyncio.ensure_future(self.closing.wait())
        watched: set[asyncio.Future[Any]] = {job.done, closing}
        if gone is not None:
            watched.add(gone)
        try:
            await asyncio.wait(watched, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if job.done.cancelled():
                raise Problem("not-found", "the evaluation was cancelled", fix="post it again")
            if job.done.done():
                return job.done.result()
            if closing.done():
                detail = "the server is closing; it continues with this evaluation when it starts again"
                fix = "post it again, here or at another server"
                raise Problem("closing", detail, fix=fix, retry_after_s=_RETRY_S[0])
            if gone is None or not gone.done():
                job.kept_by.add(client)
            return None
        finally:
            closing.cancel()
            self._leave(job, client)

    def _leave(self, job: Job, client: str) -> None:
        job.waiting[client] -= 1
        if not job.wanted and not job.done.done() and not self.closing.is_set():
            self._in_background(self._cancel_after_grace(job))

    async def _cancel_after_grace(self, job: Job) -> None:
        await asyncio.sleep(_GRACE_S)
        await self._cancel_unwanted(job)

    async def _cancel_unwanted(self, job: Job) -> None:
        async with self._accepting:  # nobody joins it meanwhile
            if job.wanted or job.done.done() or self.closing.is_set():
                return
            self._remove(job)
            job.done.cancel()
            if job.task is not None:
                job.task.cancel()
            try:
                await self._journal.cancel(job.id)
            except StorageError as error:
                logger.error("a cancelled evaluation stays in the journal: %s", error)
        self._dispatch()

    async def release(self, job: Job, client: str) -> None:
        """A client no longer wants an evaluation. It is cancelled unless another one does."""
        job.kept_by.discard(client)
        del job.waiting[client]
        await self._cancel_unwanted(job)

    async def aclose(self) -> None:
        """End the evaluations in progress; the journal keeps them. The caller closes service and journal."""
        self.closing.set()
        tasks = [job.task for job in self._jobs.values() if job.task is not None]
        tasks += self._background
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- evaluation -------------------------------------------------------------------------------------------------

    def _dispatch(self) -> None:
        while not self.closing.is_set() and self.running < self.capacity:
            queued = [client for client, jobs in self._queues.items() if jobs]
            if not queued:
                return
            client = min(queued, key=lambda name: self._n_running[name])
            job = self._queues[client].popleft()
            self._queues.move_to_end(client)
            if not self._queues[client]:
                del self._queues[client]
            job.running = True
            self._n_running[client] += 1
            job.task = asyncio.create_task(self._run(job))

    async def _run(self, job: Job) -> None:
        try:
            content = await self._evaluated(job)
            if not job.done.done():
                job.done.set_result(content)
                self._remove(job)
        finally:
            self._end_place(job)
        self._dispatch()

    async def _evaluated(self, job: Job) -> bytes:
        """The response of an evaluation, which is in the journal, too."""
        began = time.monotonic()
        response = await serve_request(self._service.evaluate, orjson.loads(job.request))
        seconds = time.monotonic() - began
        self._mean_s = _MEMORY * self._mean_s + (1 - _MEMORY) * seconds
        evaluation = response.get("evaluation")
        is_final = evaluation is not None and bool(evaluation["final"])
        content = orjson.dumps(self._redact(response))
        try:
            await self._journal.finish(job.id, content, final=is_final)
        except StorageError as error:
            logger.error("a result is in memory only, and is lost with this process: %s", error)
        self._observe(response, seconds)
        return content

    def _end_place(self, job: Job) -> None:
        if job.running:
            job.running = False
            self._n_running[job.owner] -= 1
            if not self._n_running[job.owner]:
                del self._n_running[job.owner]

    def _remove(self, job: Job) -> None:
        self._jobs.pop(job.id, None)
        waiting = self._queues.get(job.owner)
        if waiting is not None and job in waiting:
            waiting.remove(job)
        for client in job.clients:
            self._n_unfinished[client] -= 1
            if not self._n_unfinished[client]:
                del self._n_unfinished[client]

    def _retry_s(self) -> int:
        """Seconds until a place in the queue is likely to be free."""
        low, high = _RETRY_S
        return max(low, min(high, math.ceil(self._mean_s * self.queued / max(1, self.capacity) / 10)))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _response(stored: Stored | None) -> bytes | None:
    return stored.response if stored is not None else None


class QueuedEvaluator(Evaluator):
    """The evaluator of checks and episodes: their requests go through the queue.

    Args:
        client: name of the client of the current request.
        identity: of the server's evaluator; see `request_key`.
    """

    attempts = 1

    def __init__(self, queue: EvaluationQueue, limits: Limits, identity: str, client: Callable[[], str]) -> None:
        self._queue, self._identity, self._client = queue, identity, client
        # The queue has the limits.
        self.capacity = limits.queue

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """See `Evaluator.evaluate`."""
        client, id_ = self._client(), request_key(request, self._identity)
        try:
            (accepted,) = await self._queue.accept({id_: orjson.dumps(to_json(request))}, client, keep=False)
            response = accepted.response
            if response is None and accepted.job is not None:
                response = await self._queue.wait(accepted.job, client, None, None)
        except Problem as problem:
            raise InfrastructureError(problem.detail) from problem
        if response is None:
            raise InfrastructureError("the evaluation ended without a result")
        return read_response(orjson.loads(response))

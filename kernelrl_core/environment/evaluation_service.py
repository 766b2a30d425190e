"""Evaluation service: adds a concurrency limit, joining of equal requests, retries and a cache to any evaluator.

An evaluator only evaluates one candidate (`interfaces.evaluators.Evaluator`). An infrastructure error is never cached;
it is raised only to the callers that were already waiting.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import attrs
import tenacity

from kernelrl_core.environment.evaluation_cache import EvaluationCache
from kernelrl_core.errors import EvaluationError, InfrastructureError, KernelRLError, PluginError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.boundary import place_of, returned
from kernelrl_core.plugins.load_errors import error_text
from kernelrl_core.plugins.output import output_to_stderr
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome
from kernelrl_core.types.serialization import to_json

__all__ = ["EvaluationService", "request_key"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


def request_key(request: EvaluationRequest, identity: str) -> str:
    """SHA-256 (hex) of all fields of a request and of the evaluator's identity."""
    content = json.dumps({"request": to_json(request), "judged by": identity}, sort_keys=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


@attrs.define(eq=False)
class _Flight:
    """One evaluation in progress and the number of its waiting callers."""

    task: asyncio.Task[Evaluation]
    waiters: int = 0


class _Slots:
    """Admits as many evaluations as the evaluator has capacity, in the order of their requests."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator, self._taken = evaluator, 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._admit()
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                await self.__aexit__()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._taken -= 1
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._taken < self._evaluator.capacity:
            waiter = self._waiting.popleft()
            if not waiter.done():
                self._taken += 1
                waiter.set_result(None)


class EvaluationService:
    """An evaluator with a concurrency limit, joining of equal requests, retries and a cache.

    Args:
        evaluator: evaluates one candidate per call; at most `capacity` of them run concurrently. An infrastructure
            error is tried again up to `attempts` times.
        cache_dir: directory of the evaluation cache; None: no cache.
        identity: text for everything except the request that evaluations depend on, such as plugin versions.
        backoff_s: upper bound in seconds of the random pause before the second try; doubles with each further try.
        cache_entries: maximum number of cached evaluations; the least recently used are removed.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        cache_dir: Path | None,
        identity: str = "",
        backoff_s: float = 0.5,
        cache_entries: int = 50_000,
    ) -> None:
        self._evaluator = evaluator
        self._identity = f"{type(evaluator).__module__}.{type(evaluator).__qualname__} {identity}"
        self._starting, self._started, self._confines = asyncio.Lock(), False, False
        self._backoff_s = backoff_s
        self._slots = _Slots(evaluator)
        self._flights: dict[str, _Flight] = {}
        self._cache = EvaluationCache(cache_dir, cache_entries) if cache_dir is not None else None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="verdict-cache")

    @property
    def capacity(self) -> int:
        """Number of evaluations that may run concurrently; may change."""
        return self._evaluator.capacity

    @property
    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`."""
        return self._evaluator.gpu_model()

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The evaluation of a candidate: from the cache, joined with an equal request in progress, or new.

        `provenance["cached"]` is True for an evaluation from the cache, `provenance["joined"]` for one that another
        caller had already requested.

        Raises:
            InfrastructureError: the last try failed.
            PluginError: the evaluator raised an undeclared exception.
            UsageError, MissingPrerequisite: the evaluator cannot work with its configuration, or does not confine tasks
                of others.
        """
        await self.start()
        if request.domain:
            await self._require_confinement()
        key = request_key(request, self._identity)
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = _Flight(asyncio.create_task(self._cached_or_new(key, request)))
            self._flights[key] = flight
            flight.task.add_done_callback(lambda _: self._land(key, flight))
        flight.waiters += 1
        try:
            # Cancelling one caller must not cancel the evaluation for the others.
            found = await asyncio.shield(flight.task)
            return attrs.evolve(found, provenance={**found.provenance, "joined": True}) if joined else found
        finally:
            flight.waiters -= 1
            if flight.waiters == 0 and not flight.task.done():
                self._land(key, flight)
                flight.task.cancel()
                # An evaluation that replaces this one finds the worker free, and starts no other one.
                await asyncio.wait([flight.task])

    async def start(self, backend: str = "") -> None:
        """Start the evaluator, once.

        Args:
            backend: that of the requests to come.

        Raises:
            UsageError, MissingPrerequisite: the evaluator cannot work with its options.
        """
        async with self._starting:
            if not self._started:
                await self._evaluator.start()
                if found := self._evaluator.identity():
                    self._identity = f"{self._identity} {found}"
                self._started = True
                if backend:
                    await self._evaluator.expect(backend)

    async def _require_confinement(self) -> None:
        async with self._starting:
            if not self._confines:
                await self._evaluator.require_confinement()
                self._confines = True

    async def aclose(self) -> None:
        """Cancel evaluations in progress and close the evaluator."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown(wait=False)
        await self._evaluator.aclose()

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _cached_or_new(self, key: str, request: EvaluationRequest) -> Evaluation:
        if self._cache is not None:
            found = await self._on_disk(self._cache.read, key)
            if found is not None:
                return attrs.evolve(found, provenance={**found.provenance, "cached": True})
        try:
            evaluation = await self._evaluate_with_retries(request)
        except InfrastructureError as error:
            logger.warning("evaluation of %s failed %d times: %s", request.task_id, self._evaluator.attempts, error)
            raise
        if self._cache is not None and evaluation.final and evaluation.outcome is not Outcome.INFRA_ERROR:
            await self._on_disk(self._cache.write, key, evaluation)
        return evaluation

    async def _evaluate_with_retries(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate, with retries after infrastructure errors. During a pause, other evaluations may run.

        Raises:
            InfrastructureError: the last try failed.
        """

        def log_retry(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            pause_s = state.next_action.sleep if state.next_action else 0.0
            logger.warning("evaluation of %s failed, retrying in %.1f s: %s", request.task_id, pause_s, error)

        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(InfrastructureError),
            stop=tenacity.stop_after_attempt(self._evaluator.attempts),
            wait=tenacity.wait_random_exponential(multiplier=self._backoff_s, max=60),
            before_sleep=log_retry,
            reraise=True,
        ):
            with attempt:
                async with self._slots:
                    return await self._once(request)
        raise AssertionError("the retries either return or raise")

    async def _once(self, request: EvaluationRequest) -> Evaluation:
        try:
            with output_to_stderr():
                evaluation = await self._evaluator.evaluate(request)
        except InfrastructureError as error:
            raise EvaluationError.at_boundary(error) from error.__cause__
        except KernelRLError:
            raise
        except (Exception, SystemExit) as error:
            logger.exception("the evaluator raised an undeclared exception")
            raise PluginError(f"the evaluator failed: {error_text(error)}{place_of(error)}") from error
        evaluation = returned(evaluation, Evaluation, "the evaluator", "evaluate")
        # With `checked` set, the evaluator did all that this machine supports, so a retry would change nothing.
        if evaluation.outcome is Outcome.INFRA_ERROR and not evaluation.checked:
            raise EvaluationError(evaluation.detail or evaluation.message or "the evaluator reported infra_error")
        return evaluation

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

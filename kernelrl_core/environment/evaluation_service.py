"""What the core adds to every evaluator: capacity, joining of equal requests, retries and a cache on disk.

An evaluator only has to evaluate one candidate (`interfaces.evaluators.Evaluator`). An infrastructure error is neither
cached nor shared beyond the callers that were already waiting for the evaluation.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import attrs
import tenacity

from kernelrl_core.environment.evaluation_cache import EvaluationCache
from kernelrl_core.errors import EvaluationError, InfrastructureError, KernelRLError, PluginError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome
from kernelrl_core.types.serialization import to_json

__all__ = ["EvaluationService", "request_key"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


def request_key(request: EvaluationRequest, identity: str) -> str:
    """Hex SHA-256 over every field of a request and the identity of what evaluates it."""
    content = json.dumps({"request": to_json(request), "judged by": identity}, sort_keys=True)
    return hashlib.sha256(content.encode("ascii")).hexdigest()


@attrs.define(eq=False)
class _Flight:
    """One evaluation under way and the number of callers waiting for it."""

    task: asyncio.Task[Evaluation]
    waiters: int = 0


class EvaluationService:
    """An evaluator with capacity, joining, retries and a cache.

    Args:
        evaluator: called for one candidate at a time, and for as many at once as its `capacity`.
        cache_dir: directory of cached evaluations; None neither reads nor writes any.
        attempts: tries of an evaluation that ends in an infrastructure error, the first included.
        identity: what an evaluation depends on beside the request, such as the versions of the plugins and the GPU.
        backoff_s: upper bound of the random pause before the second try; it doubles with each further one.
        cache_entries: most evaluations kept on disk; the least recently used go first.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        cache_dir: Path | None,
        attempts: int = 3,
        identity: str = "",
        backoff_s: float = 0.5,
        cache_entries: int = 50_000,
    ) -> None:
        self._evaluator = evaluator
        self._identity = f"{type(evaluator).__module__}.{type(evaluator).__qualname__} {identity}"
        self._starting, self._started = asyncio.Lock(), False
        self._attempts = attempts
        self._backoff_s = backoff_s
        self._slots = asyncio.Semaphore(evaluator.capacity)
        self._flights: dict[str, _Flight] = {}
        self._cache = EvaluationCache(cache_dir, cache_entries) if cache_dir is not None else None
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="verdict-cache")

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """The evaluation of a candidate: cached, shared with equal requests under way, or new.

        `provenance["cached"]` is set on one from the disk, `provenance["joined"]` on one that another caller requested
        first.

        Raises:
            InfrastructureError: the last try failed, too.
            UsageError, MissingPrerequisite: the evaluator cannot work as it is configured.
        """
        await self._start()
        key = request_key(request, self._identity)
        flight = self._flights.get(key)
        joined = flight is not None
        if flight is None:
            flight = _Flight(asyncio.create_task(self._judge(key, request)))
            self._flights[key] = flight
            flight.task.add_done_callback(lambda _: self._land(key, flight))
        flight.waiters += 1
        try:
            # A caller that is cancelled must not take the evaluation away from the others.
            found = await asyncio.shield(flight.task)
            return attrs.evolve(found, provenance={**found.provenance, "joined": True}) if joined else found
        finally:
            flight.waiters -= 1
            if flight.waiters == 0 and not flight.task.done():
                self._land(key, flight)
                flight.task.cancel()

    async def _start(self) -> None:
        async with self._starting:
            if not self._started:
                await self._evaluator.start()
                if found := self._evaluator.identity():
                    self._identity = f"{self._identity} {found}"
                self._started = True

    async def aclose(self) -> None:
        """Cancel what is under way and close the evaluator."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._disk.shutdown(wait=False)
        await self._evaluator.aclose()

    def _land(self, key: str, flight: _Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _judge(self, key: str, request: EvaluationRequest) -> Evaluation:
        if self._cache is not None:
            found = await self._on_disk(self._cache.read, key)
            if found is not None:
                return attrs.evolve(found, provenance={**found.provenance, "cached": True})
        try:
            evaluation = await self._evaluate_with_retries(request)
        except InfrastructureError as error:
            logger.warning("evaluation of %s gave up after %d tries: %s", request.task_id, self._attempts, error)
            raise
        if self._cache is not None and evaluation.outcome is not Outcome.INFRA_ERROR:
            await self._on_disk(self._cache.write, key, evaluation)
        return evaluation

    async def _evaluate_with_retries(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate, and try again after an infrastructure error; the slot is free during the pause.

        Raises:
            InfrastructureError: the last attempt failed, too.
        """

        def tell(state: tenacity.RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            pause_s = state.next_action.sleep if state.next_action else 0.0
            logger.warning("evaluation of %s failed, tried again in %.1f s: %s", request.task_id, pause_s, error)

        async for attempt in tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(InfrastructureError),
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_random_exponential(multiplier=self._backoff_s, max=60),
            before_sleep=tell,
            reraise=True,
        ):
            with attempt:
                async with self._slots:
                    return await self._once(request)
        raise AssertionError("the retries either return or raise")

    async def _once(self, request: EvaluationRequest) -> Evaluation:
        try:
            evaluation = await self._evaluator.evaluate(request)
        except InfrastructureError as error:
            raise EvaluationError.at_boundary(error) from error.__cause__
        except KernelRLError:
            raise
        except Exception as error:
            logger.exception("the evaluator failed in a way it does not declare")
            raise PluginError(f"the evaluator failed: {type(error).__name__}: {error}") from error
        # An evaluator that says what it could check has done what this machine can: trying again changes nothing.
        if evaluation.outcome is Outcome.INFRA_ERROR and not evaluation.checked:
            raise EvaluationError(evaluation.detail or evaluation.message or "the evaluator reported infra_error")
        return evaluation

    async def _on_disk(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)

"""The evaluation service: concurrency limit, joining, retries, evaluation cache."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.api.evaluators import Evaluator
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.errors import EvaluationError, InfrastructureError, KernelRLError, PluginError, UsageError
from kernelrl_core.types import Evaluation, EvaluationRequest, Outcome
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import takes_async, wait_until_async


def request(name: str = "a") -> EvaluationRequest:
    return make_request(name)


class Fake(Evaluator):
    """An evaluator with a configurable duration and number of failures."""

    def __init__(self, *, capacity: int = 8, seconds: float = 0.05, failures: int = 0, identity: str = "a GPU") -> None:
        self.capacity = capacity
        self.known_after_start = identity
        self.starts = 0
        self.seconds = seconds
        self.failures = failures
        self.started = 0
        self.cancelled = 0
        self.running = 0
        self.most = 0

    async def start(self) -> None:
        self.starts += 1
        await takes_async(0)

    def identity(self) -> str:
        assert self.starts
        return self.known_after_start

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.started += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await takes_async(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if self.failures:
            self.failures -= 1
            raise InfrastructureError("a broken machine")
        if request.source == "task":
            raise UsageError("a broken task")
        return Evaluation(Outcome.CORRECT, message=request.source)


def service(fake: Fake, cache: Path | None = None) -> EvaluationService:
    return EvaluationService(fake, cache_dir=cache, backoff_s=0.001)


def test_equal_concurrent_requests_are_evaluated_once() -> None:
    async def scene() -> None:
        fake = Fake()
        made = service(fake)
        evaluations = await asyncio.gather(*(made.evaluate(request()) for _ in range(10)))
        assert fake.started == 1
        assert {evaluation.message for evaluation in evaluations} == {"a"}
        # Nine of them are joined.
        assert sum("joined" in evaluation.provenance for evaluation in evaluations) == 9
        await made.aclose()

    asyncio.run(scene())


class Confining(Fake):
    async def require_confinement(self) -> None:
        pass


def test_a_task_of_others_is_not_evaluated_where_it_is_not_confined() -> None:
    async def scene() -> None:
        fake = Fake()
        made = service(fake)
        with pytest.raises(UsageError, match="does not confine tasks of others"):
            await made.evaluate(attrs.evolve(request(), domain="client"))
        assert fake.started == 0
        await made.aclose()

    asyncio.run(scene())


def test_domains_share_no_evaluation(tmp_path: Path) -> None:
    async def scene() -> None:
        fake = Confining()
        made = service(fake, tmp_path)
        requests = [attrs.evolve(request(), domain=domain) for domain in ("", "a", "b")]
        # Together, and then from the cache.
        for _ in range(2):
            await asyncio.gather(*(made.evaluate(one) for one in requests))
            assert fake.started == 3
        await made.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize("gone", [0, 1, 4])
def test_cancelled_caller_does_not_cancel_the_others(gone: int) -> None:
    async def scene() -> None:
        fake = Fake()
        made = service(fake)
        waiters = [asyncio.create_task(made.evaluate(request())) for _ in range(5)]
        await wait_until_async(lambda: fake.started)
        waiters[gone].cancel()
        evaluations = await asyncio.gather(*waiters, return_exceptions=True)
        assert [isinstance(evaluation, Evaluation) for evaluation in evaluations].count(True) == 4
        assert (fake.started, fake.cancelled) == (1, 0)
        await made.aclose()

    asyncio.run(scene())


def test_evaluation_without_callers_has_been_cancelled_when_they_end() -> None:
    async def scene() -> None:
        fake = Fake(seconds=10)
        made = service(fake)
        waiters = [asyncio.create_task(made.evaluate(request())) for _ in range(3)]
        await wait_until_async(lambda: fake.started)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)
        assert fake.cancelled == 1
        fake.seconds = 0.0
        assert (await made.evaluate(request("b"))).correct
        await made.aclose()

    asyncio.run(scene())


def test_concurrency_is_limited_by_the_capacity() -> None:
    async def scene() -> None:
        fake = Fake(capacity=3, seconds=0.01)
        made = service(fake)
        await asyncio.gather(*(made.evaluate(request(str(n))) for n in range(20)))
        assert (fake.started, fake.most) == (20, 3)
        await made.aclose()

    asyncio.run(scene())


@pytest.mark.parametrize(("failures", "runs"), [(2, 3), (3, 3)])
def test_infrastructure_error_is_retried_and_then_raised(failures: int, runs: int) -> None:
    async def scene() -> None:
        fake = Fake(seconds=0.0, failures=failures)
        made = service(fake)
        with pytest.raises(EvaluationError) if failures == 3 else contextlib.nullcontext():
            assert (await made.evaluate(request())).outcome is Outcome.CORRECT
        assert fake.started == runs
        await made.aclose()

    asyncio.run(scene())


def test_waiting_evaluations_begin_when_the_capacity_grows() -> None:
    async def scene() -> None:
        fake = Fake(capacity=1, seconds=0.01)
        made = service(fake)
        waiting = [asyncio.create_task(made.evaluate(request(str(n)))) for n in range(9)]
        await wait_until_async(lambda: fake.running == 1)
        fake.capacity = 4
        await asyncio.gather(*waiting)
        assert fake.most == 4
        await made.aclose()

    asyncio.run(scene())


def test_a_cancelled_wait_leaves_its_place_to_the_next() -> None:
    async def scene() -> None:
        fake = Fake(capacity=1, seconds=0.01)
        made = service(fake)
        first, second, third = (asyncio.create_task(made.evaluate(request(str(n)))) for n in range(3))
        await wait_until_async(lambda: fake.started)
        second.cancel()
        await asyncio.gather(first, third)
        assert fake.started == 2
        await made.aclose()

    asyncio.run(scene())


def test_usage_error_is_not_retried() -> None:
    async def scene() -> None:
        fake = Fake(seconds=0.0)
        made = service(fake)
        with pytest.raises(UsageError):
            await made.evaluate(request("task"))
        assert fake.started == 1
        await made.aclose()

    asyncio.run(scene())


def test_an_evaluator_is_started_once_before_its_first_evaluation() -> None:
    async def scene() -> None:
        fake = Fake(seconds=0.0)
        made = service(fake)
        assert fake.starts == 0
        await asyncio.gather(*(made.evaluate(request(str(n))) for n in range(5)))
        assert (fake.starts, fake.started) == (1, 5)
        await made.aclose()

    asyncio.run(scene())


def twice(
    cache: Path, between: Callable[[], None] = lambda: None, failures: int = 0, identity: str = "a GPU"
) -> tuple[int, Evaluation]:
    """Send one request to two services in turn; return calls and result of the second."""

    async def scene() -> tuple[int, Evaluation]:
        first = service(Fake(seconds=0.0, failures=failures), cache)
        with pytest.raises(EvaluationError) if failures > 2 else contextlib.nullcontext():
            await first.evaluate(request())
        await first.aclose()
        between()
        fake = Fake(seconds=0.0, identity=identity)
        second = service(fake, cache)
        evaluation = await second.evaluate(request())
        await second.aclose()
        return fake.started, evaluation

    return asyncio.run(scene())


def test_cached_evaluation_is_reused_by_another_service(tmp_path: Path) -> None:
    runs, evaluation = twice(tmp_path)
    assert runs == 0
    assert evaluation.provenance["cached"] is True


def test_evaluation_of_another_identity_is_not_reused(tmp_path: Path) -> None:
    assert twice(tmp_path, identity="another GPU")[0] == 1


def test_infrastructure_error_is_never_cached(tmp_path: Path) -> None:
    assert twice(tmp_path, failures=3)[0] == 1


def test_evaluation_that_the_load_may_have_decided_is_not_cached(tmp_path: Path) -> None:
    class Loaded(Fake):
        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            self.started += 1
            return Evaluation(Outcome.COMPILE_ERROR, final=False)

    async def scene() -> None:
        fake = Loaded()
        made = service(fake, tmp_path)
        for _ in range(2):
            await made.evaluate(request())
        assert fake.started == 2
        await made.aclose()

    asyncio.run(scene())


def test_damaged_cache_entry_is_evaluated_again(tmp_path: Path) -> None:
    def damage() -> None:
        for path in tmp_path.rglob("*.json"):
            path.write_text("{")

    runs, evaluation = twice(tmp_path, damage)
    assert (runs, evaluation.outcome) == (1, Outcome.CORRECT)


def test_undeclared_exception_of_an_evaluator_is_a_plugin_error() -> None:
    class Faulty(Fake):
        attempts = 1

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            raise KeyError("a fault of the plugin")

    async def run() -> None:
        service = EvaluationService(Faulty(), cache_dir=None)
        with pytest.raises(PluginError, match="the evaluator failed: KeyError"):
            await service.evaluate(request())
        await service.aclose()

    asyncio.run(run())


def test_an_evaluator_that_returns_no_evaluation_is_an_error_without_retries() -> None:
    class Silent(Fake):
        async def evaluate(self, request: EvaluationRequest) -> Any:
            self.started += 1

    async def run() -> int:
        silent = Silent()
        with pytest.raises(KernelRLError, match="the evaluator returned None from evaluate, not Evaluation"):
            await service(silent).evaluate(request())
        return silent.started

    assert asyncio.run(run()) == 1

"""Evaluations over HTTP: accepted once, joined, stored, waited for, cancelled, in fair shares."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from service_servers import RIGHT, TASK

from kernelrl_core.api.errors import InfrastructureError, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome, read_response, to_json
from kernelrl_service.options import Limits
from kernelrl_service.tokens import Client, Tokens
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import REFERENCE, make_evaluation, make_request
from kernelrl_testing.waiting import wait_until_async


class Held(FakeEvaluator):
    """Evaluates when `release` is set; counts the cancelled evaluations."""

    def __init__(self, capacity: int = 4) -> None:
        super().__init__(capacity=capacity)
        self.release = asyncio.Event()
        self.n_cancelled = 0

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.n_cancelled += 1
            raise
        return make_evaluation()


def test_a_correct_kernel_gets_its_evaluation(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            answer = await server.evaluate()
            found = answer.json()
            assert (answer.status_code, found["status"], found["cached"]) == (200, "done", False)
            assert read_response(found) == make_evaluation(Outcome.CORRECT)
            assert answer.headers["location"] == f"/v1/evaluations/{found['id']}"

    asyncio.run(test())


def test_a_request_of_the_core_is_accepted_as_it_is(running: Any) -> None:
    async def test() -> None:
        request = make_request(RIGHT, REFERENCE, "triton", backend_options={"mode": "auto"})
        async with running() as server:
            answer = await server.http.post("/v1/evaluations", params={"wait": 30}, json=to_json(request))
            assert answer.json()["status"] == "done", answer.text
            assert server.evaluator.requests == [request]

    asyncio.run(test())


def test_an_equal_request_is_evaluated_once_and_its_result_is_stored(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            first, second = await server.evaluate(), await server.evaluate()
            assert second.json() == {**first.json(), "cached": True}
            assert len(server.evaluator.requests) == 1

    asyncio.run(test())


def test_requests_that_differ_in_one_setting_are_two_evaluations(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            first, second = await server.evaluate(), await server.evaluate(settings={"trials": 6})
            assert first.json()["id"] != second.json()["id"]

    asyncio.run(test())


def test_equal_requests_at_the_same_time_share_one_evaluation(running: Any) -> None:
    async def test() -> None:
        evaluator = Held()
        async with running(evaluator) as server:
            requests = [asyncio.create_task(server.evaluate()) for _ in range(8)]
            await wait_until_async(lambda: len(evaluator.requests) == 1, what="the evaluation begins")
            evaluator.release.set()
            responses = await asyncio.gather(*requests)
            assert {answer.json()["id"] for answer in responses} == {responses[0].json()["id"]}
            assert len(evaluator.requests) == 1

    asyncio.run(test())


def test_an_evaluation_that_is_not_finished_can_be_polled(running: Any) -> None:
    async def test() -> None:
        evaluator = Held()
        async with running(evaluator) as server:
            answer = await server.evaluate(wait=0)
            place = answer.headers["location"]
            assert (answer.status_code, "retry-after" in answer.headers) == (202, True)
            await wait_until_async(lambda: server.server.queue.running == 1, what="the evaluation begins")
            assert (await server.http.get(place)).json()["status"] == "running"
            evaluator.release.set()
            found = await server.http.get(place, params={"wait": 30})
            assert (found.status_code, found.json()["evaluation"]["outcome"]) == (200, "correct")

    asyncio.run(test())


def test_a_result_that_is_not_final_is_evaluated_again(running: Any) -> None:
    async def test() -> None:
        evaluator = FakeEvaluator(lambda request: make_evaluation(Outcome.COMPILE_ERROR, final=False))
        async with running(evaluator) as server:
            first, second = await server.evaluate(), await server.evaluate()
            assert first.json()["id"] == second.json()["id"]
            assert len(evaluator.requests) == 2
            stored = await server.http.get(second.headers["location"])
            assert stored.json()["evaluation"]["outcome"] == "compile_error"

    asyncio.run(test())


def test_an_infrastructure_error_is_no_result_and_is_tried_again(running: Any) -> None:
    async def test() -> None:
        results: list[Evaluation | BaseException] = [InfrastructureError("planted")] * 3 + [make_evaluation()]
        async with running(FakeEvaluator(lambda request: results.pop(0))) as server:
            first = (await server.evaluate()).json()
            assert (first["status"], first["error"]) == ("failed", "InfrastructureError")
            with pytest.raises(InfrastructureError, match="planted"):
                read_response(first)
            assert (await server.evaluate()).json()["status"] == "done"

    asyncio.run(test())


def test_an_error_of_the_task_arrives_as_such(running: Any) -> None:
    async def test() -> None:
        error = UsageError("the reference raises", fix="correct it")
        async with running(FakeEvaluator(lambda request: error)) as server:
            found = (await server.evaluate()).json()
            with pytest.raises(UsageError, match="the reference raises"):
                read_response(found)

    asyncio.run(test())


def test_a_batch_has_its_results_in_the_order_of_its_requests(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            sources = [RIGHT, "wrong", RIGHT]
            requests = [{"source": source, "backend": "triton", "task_id": TASK} for source in sources]
            answer = await server.http.post("/v1/evaluations/batch", params={"wait": 30}, json={"requests": requests})
            outcomes = [one["evaluation"]["outcome"] for one in answer.json()["evaluations"]]
            assert outcomes == ["correct", "incorrect", "correct"]
            assert len(server.evaluator.requests) == 2

    asyncio.run(test())


def test_a_batch_above_the_limit_is_refused_as_a_whole(running: Any) -> None:
    async def test() -> None:
        evaluator = Held(capacity=1)
        async with running(evaluator, limits=Limits(queue=2)) as server:
            requests = [{"source": str(index), "backend": "triton", "task_id": TASK} for index in range(3)]
            answer = await server.http.post("/v1/evaluations/batch", json={"requests": requests})
            assert (answer.status_code, answer.json()["type"]) == (429, "urn:kernelrl:queue-full")
            assert int(answer.headers["retry-after"]) >= 1
            assert server.server.queue.queued == 0

    asyncio.run(test())


def test_a_deleted_evaluation_is_cancelled(running: Any) -> None:
    async def test() -> None:
        evaluator = Held()
        async with running(evaluator) as server:
            place = (await server.evaluate(wait=0)).headers["location"]
            await wait_until_async(lambda: len(evaluator.requests) == 1, what="the evaluation begins")
            assert (await server.http.delete(place)).status_code == 204
            await wait_until_async(lambda: evaluator.n_cancelled == 1, what="the evaluation is cancelled")
            assert (await server.http.get(place)).status_code == 404

    asyncio.run(test())


def test_a_deleted_evaluation_continues_for_another_client(running: Any) -> None:
    async def test() -> None:
        evaluator = Held()
        async with running(evaluator, tokens=two_clients()) as server:
            place = (await server.evaluate(wait=0, headers=bearer("a"))).headers["location"]
            await server.evaluate(wait=0, headers=bearer("b"))
            assert (await server.http.delete(place, headers=bearer("a"))).status_code == 204
            evaluator.release.set()
            found = await server.http.get(place, params={"wait": 30}, headers=bearer("b"))
            assert found.json()["status"] == "done"

    asyncio.run(test())


def test_a_client_sees_only_evaluations_that_it_submitted(running: Any) -> None:
    async def test() -> None:
        async with running(tokens=two_clients()) as server:
            place = (await server.evaluate(headers=bearer("a"))).headers["location"]
            assert (await server.http.get(place, headers=bearer("b"))).status_code == 404
            assert (await server.http.delete(place, headers=bearer("b"))).status_code == 404

    asyncio.run(test())


def test_a_client_with_few_evaluations_does_not_wait_for_one_with_many(running: Any) -> None:
    async def test() -> None:
        evaluator = Held(capacity=1)
        async with running(evaluator, tokens=two_clients()) as server:
            for index in range(20):
                await server.evaluate(f"many {index}", wait=0, headers=bearer("a"))
            for index in range(2):
                await server.evaluate(f"few {index}", wait=0, headers=bearer("b"))
            evaluator.release.set()
            await wait_until_async(lambda: len(evaluator.requests) == 22, what="all evaluations begin")
            order = [request.source for request in evaluator.requests]
            # Each gets every second place while both have work.
            assert max(order.index("few 0"), order.index("few 1")) <= 5, order

    asyncio.run(test())


def test_a_client_above_its_own_limit_does_not_stop_others(running: Any) -> None:
    async def test() -> None:
        evaluator = Held(capacity=1)
        async with running(evaluator, tokens=two_clients(), limits=Limits(unfinished_per_client=2)) as server:
            responses = [await server.evaluate(str(n), wait=0, headers=bearer("a")) for n in range(3)]
            assert [answer.status_code for answer in responses] == [202, 202, 429]
            assert responses[-1].json()["type"] == "urn:kernelrl:too-many"
            assert (await server.evaluate("other", wait=0, headers=bearer("b"))).status_code == 202

    asyncio.run(test())


def two_clients() -> Tokens:
    return Tokens.of({"a": Client("a"), "b": Client("b")})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}

"""The client against a stand-in for Modal, on a virtual clock. The flaws B1 to B15 of the published client
each have a test here, or a line on where they are covered:

B5, B6, B7, B8: the judge classifies errors, keeps their text and times only correct kernels
(`plugins/kernelrl-judge/tests`). B11: the request carries its own limits; `test_a_request_arrives_unchanged`. B12: no
module of the client has state; `test_two_evaluators_share_nothing`. B14: the judge forks from a warm process and builds
have their own containers (`test_app.py`). B15: the core joins equal requests
(`tests/environment/test_evaluation_service.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import modal.exception
import pytest
from modal_standin import COLD_START_S, GPU, Function, describe, evaluator_on, run_virtually, served

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest
from kernelrl_testing.core import EvaluationService
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import takes_async

CUDA_SOURCE = """
import torch
from torch.utils.cpp_extension import load_inline

added = load_inline(name="added", cpp_sources="torch::Tensor f(torch::Tensor x);",
                    cuda_sources="torch::Tensor f(torch::Tensor x) { return x; }", functions=["f"])
"""


def request(number: int = 0, **fields: Any) -> EvaluationRequest:
    return make_request(f"# {number}", **{"backend": "triton", **fields})


def fixed(seconds: float) -> Callable[..., float]:
    return lambda message, draw: seconds


def test_b1_a_straggler_delays_only_itself() -> None:
    async def work() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        function = Function(9, served, warm_s=lambda m, _: 60.0 if m.get("request", {}).get("source") == "# 0" else 1.0)
        evaluator = evaluator_on(function)
        await evaluator.start()
        slow = asyncio.create_task(evaluator.evaluate(request(0)))
        begin = loop.time()
        await asyncio.gather(*(evaluator.evaluate(request(n)) for n in range(1, 33)))
        others_s = loop.time() - begin
        await slow
        return others_s, loop.time() - begin

    others_s, all_s = run_virtually(work())
    assert others_s < COLD_START_S + 6
    assert all_s >= 60


def test_b2_a_cancelled_waiter_frees_its_container_and_harms_no_other() -> None:
    async def work() -> tuple[list[Any], Function]:
        function = Function(4, served, warm_s=fixed(5.0))
        evaluator = evaluator_on(function)
        await evaluator.start()
        tasks = [asyncio.create_task(evaluator.evaluate(request(n))) for n in range(32)]
        for number in range(0, 32, 2):
            await takes_async(1.0)
            tasks[number].cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await evaluator.aclose()
        return found, function

    found, function = run_virtually(work())
    assert all(isinstance(one, Evaluation) for one in found[1::2])
    assert any(isinstance(one, asyncio.CancelledError) for one in found[::2])
    assert not function.broken
    assert function.n_free == 4
    assert not function.queue


def test_b2_a_call_that_is_cancelled_while_it_is_spawned_is_ended() -> None:
    async def work() -> Function:
        function = Function(1, served)
        evaluator = evaluator_on(function)
        await evaluator.start()
        task = asyncio.create_task(evaluator.evaluate(request()))
        await takes_async(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await evaluator.aclose()
        return function

    function = run_virtually(work())
    assert function.n_free == 1
    assert function.n_served == 1  # of `describe`


def test_b3_an_outage_is_an_infrastructure_error_and_is_not_cached(tmp_path: Any) -> None:
    failing = True

    def serve(message: dict[str, Any]) -> dict[str, Any]:
        if message["do"] == "evaluate" and failing:
            return {"error": "InfrastructureError", "message": "the GPU failed", "fix": ""}
        return served(message)

    async def work() -> None:
        nonlocal failing
        service = EvaluationService(evaluator_on(Function(1, serve)), cache_dir=tmp_path, backoff_s=0.01)
        with pytest.raises(InfrastructureError, match="the GPU failed"):
            await service.evaluate(request())
        failing = False
        found = await service.evaluate(request())
        assert found.correct
        assert "cached" not in found.provenance
        await service.aclose()

    asyncio.run(_quickly(work()))


async def _quickly(work: Any) -> Any:
    import modal_standin

    cold, modal_standin.COLD_START_S = modal_standin.COLD_START_S, 0.01
    warm, modal_standin.WARM_S = modal_standin.WARM_S, (0.001, 0.002)
    try:
        return await work
    finally:
        modal_standin.COLD_START_S, modal_standin.WARM_S = cold, warm


def test_b10_a_failure_is_tried_once_by_the_client() -> None:
    async def work() -> int:
        calls = 0

        def serve(message: dict[str, Any]) -> dict[str, Any]:
            nonlocal calls
            calls += message["do"] == "evaluate"
            return served(message) if message["do"] == "describe" else {"error": "InfrastructureError", "message": "x"}

        evaluator = evaluator_on(Function(1, serve))
        await evaluator.start()
        with pytest.raises(InfrastructureError):
            await evaluator.evaluate(request())
        return calls

    assert run_virtually(work()) == 1


def test_b11_a_request_arrives_unchanged() -> None:
    from kernelrl_core.api.evaluators import EvaluationSettings, to_json

    seen = []

    def serve(message: dict[str, Any]) -> dict[str, Any]:
        seen.append(message)
        return served(message)

    async def work() -> None:
        evaluator = evaluator_on(Function(1, serve))
        await evaluator.start()
        await evaluator.evaluate(sent)

    sent = request(settings=EvaluationSettings(timeout_s=7.5, trials=3))
    run_virtually(work())
    assert seen[-1]["request"] == to_json(sent)
    assert seen[-1]["gpu"] == GPU


def test_b12_two_evaluators_share_nothing() -> None:
    async def work() -> tuple[str, str]:
        def serve(message: dict[str, Any]) -> dict[str, Any]:
            return {**describe(), "gpu": "NVIDIA H200"} if message["do"] == "describe" else served(message)

        one, other = evaluator_on(Function(1, served)), evaluator_on(Function(1, serve), gpu="H200")
        await one.start()
        await other.start()
        return one.identity(), other.identity()

    one, other = run_virtually(work())
    assert GPU in one
    assert "NVIDIA H200" in other
    assert one.split()[-1] != other.split()[-1]


def test_a_result_of_another_gpu_model_is_an_infrastructure_error() -> None:
    def serve(message: dict[str, Any]) -> dict[str, Any]:
        found = served(message)
        if "evaluation" in found:
            found["evaluation"]["provenance"]["gpu"] = "NVIDIA H200"
        return found

    async def work() -> None:
        evaluator = evaluator_on(Function(1, serve))
        await evaluator.start()
        with pytest.raises(InfrastructureError, match="measured on NVIDIA H200, the run uses NVIDIA H100"):
            await evaluator.evaluate(request())

    run_virtually(work())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu": "NVIDIA A100-SXM4-40GB"}, "requests GPU H100, and its container has NVIDIA A100-SXM4-40GB"),
        ({"gpu": ""}, "its container has none"),
        ({"versions": {**describe()["versions"], "kernelrl": "0.0.1"}}, "other versions: kernelrl 0.0.1, here"),
    ],
)
def test_a_container_that_does_not_fit_is_found_at_the_start(change: dict[str, Any], message: str) -> None:
    async def work() -> None:
        with pytest.raises(MissingPrerequisite, match=message):
            await evaluator_on(Function(1, lambda _: {**describe(), **change})).start()

    run_virtually(work())


@pytest.mark.parametrize(
    ("error", "message", "fix"),
    [
        (modal.exception.AuthError("token expired"), "refuses the token.*token expired", "modal token new"),
        (modal.exception.PermissionDeniedError("no"), "refuses the token", "MODAL_TOKEN_ID"),
        (modal.exception.ResourceExhaustedError("limit"), "quota of Modal is exhausted: limit", "max_containers"),
        (modal.exception.VersionError("too old"), "refuses this version of its client", "pip install -U"),
        (modal.exception.ConnectionError("no route"), "Modal failed: ConnectionError: no route", "try again"),
    ],
)
def test_a_start_that_fails_is_a_missing_prerequisite_with_a_fix(error: Exception, message: str, fix: str) -> None:
    class Refusing(Function):
        async def _spawn(self, text: str) -> Any:
            raise error

    async def work() -> None:
        with pytest.raises(MissingPrerequisite, match=message) as found:
            await evaluator_on(Refusing(1, served)).start()
        assert fix in found.value.fix

    run_virtually(work())


def test_an_app_that_is_not_deployed_has_the_command_as_its_fix(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unknown:
        @staticmethod
        def from_name(app: str, name: str) -> Unknown:
            return Unknown()

        class hydrate:
            @staticmethod
            async def aio() -> None:
                raise modal.exception.NotFoundError("no such app")

    async def work() -> None:
        with pytest.raises(MissingPrerequisite, match="is not deployed, or was deployed with other options") as found:
            await evaluator_on(None, gpu="H200", max_containers=4).start()
        assert found.value.fix == "kernelrl modal deploy gpu=H200 max_containers=4"

    monkeypatch.setattr(modal, "Function", Unknown)
    run_virtually(work())


@pytest.mark.parametrize("payload", [b"pickle", '"text"', "no json", None, {"a": 1}])
def test_a_response_that_is_no_json_object_is_an_infrastructure_error(payload: Any) -> None:
    from kernelrl_plugin_modal.client import _read

    with pytest.raises(InfrastructureError, match="something else than JSON"):
        _read(payload)


def test_builds_travel_from_a_container_without_a_gpu() -> None:
    seen: list[dict[str, Any]] = []

    def serve(message: dict[str, Any]) -> dict[str, Any]:
        seen.append(message)
        return {"builds": {"objects/ab/abc/result.json": "e30="}} if message["do"] == "build" else served(message)

    async def work() -> None:
        evaluator = evaluator_on(Function(1, serve), Function(1, serve))
        await evaluator.start()
        await evaluator.evaluate(make_request(CUDA_SOURCE, backend="cuda"))
        await evaluator.evaluate(make_request(CUDA_SOURCE + "# -march=native", backend="cuda"))

    asyncio.run(_quickly(work()))
    assert [message["do"] for message in seen] == ["describe", "build", "evaluate", "evaluate"]
    assert seen[1]["arch"] == "9.0"
    assert seen[2]["builds"] == {"objects/ab/abc/result.json": "e30="}
    assert seen[3]["builds"] == {}


def test_waiting_for_containers_is_logged_and_does_not_fail(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> Evaluation:
        evaluator = evaluator_on(Function(1, served, warm_s=lambda m, _: 1.0 if m["do"] == "describe" else 1000.0))
        await evaluator.start()
        return await evaluator.evaluate(request())

    with caplog.at_level(logging.WARNING):
        assert run_virtually(work()).correct
    assert caplog.text.count("no result from Modal for 5 min; 1 calls wait") == 3


def test_the_seconds_of_the_container_are_metered() -> None:
    async def work() -> Evaluation:
        evaluator = evaluator_on(Function(1, served, warm_s=fixed(2.0)))
        await evaluator.start()
        return await evaluator.evaluate(request())

    assert run_virtually(work()).seconds["gpu"] == 2.0


def test_an_evaluation_before_the_start_is_a_usage_error() -> None:
    async def work() -> None:
        with pytest.raises(UsageError, match="not started"):
            await evaluator_on(Function(1, served)).evaluate(request())

    run_virtually(work())


def test_outages_lose_and_double_nothing() -> None:
    async def work() -> tuple[list[Any], Function]:
        function = Function(16, served, outages=0.05, seed=3)
        service = EvaluationService(evaluator_on(function, max_containers=16), cache_dir=None, backoff_s=0.5)
        await _started(service)
        found = await asyncio.gather(*(service.evaluate(request(n)) for n in range(600)), return_exceptions=True)
        await service.aclose()
        return found, function

    found, _ = run_virtually(work())
    wrong = [
        number
        for number, one in enumerate(found)
        if not isinstance(one, InfrastructureError) and one.detail != request(number).source_sha256
    ]
    assert wrong == []
    # Three tries in a row fail with probability 0.05 ** 3.
    assert sum(isinstance(one, InfrastructureError) for one in found) <= 3


async def _started(service: EvaluationService) -> None:
    while True:
        try:
            return await service.start()
        except MissingPrerequisite:
            continue

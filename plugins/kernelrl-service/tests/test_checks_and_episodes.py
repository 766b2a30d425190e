"""Checks, scores and episodes over HTTP; the evaluator of the test kit finds `right` in correct sources."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from service_servers import TASK, Running

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome
from kernelrl_service.tokens import Client, Tokens
from kernelrl_testing.fakes import FakeEvaluator

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(1,)](x, y, x.numel(), BLOCK=64)
        return y  # WORD
"""
RIGHT, WRONG = KERNEL.replace("WORD", "right"), KERNEL.replace("WORD", "left")
RECIPE, TASK_OF_RECIPE = "quickstart_multi_turn", "starter/1/relu_double"


def reply(kernel: str) -> str:
    return f"```python\n{kernel}```"


def test_a_check_has_the_object_of_the_command(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            answer = await server.http.post("/v1/check", json={"task": TASK, "kernel": RIGHT})
            found = answer.json()
            assert answer.status_code == 200, answer.text
            assert (found["task"], found["outcome"], found["verdict"]) == (TASK, "correct", "clean")
            assert (found["backend"], found["kernel"]) == ("triton", "kernel")

    asyncio.run(test())


def test_a_kernel_that_breaks_a_rule_has_findings_beside_its_evaluation(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            kernel = (
                "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x.relu()  # right\n"
            )
            found = (await server.http.post("/v1/check", json={"task": TASK, "kernel": kernel})).json()
            assert "no_kernel" in {finding["rule"] for finding in found["findings"]}

    asyncio.run(test())


def test_an_equal_check_is_evaluated_once_and_another_seed_again(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            for body in ({}, {}, {"seed": 1}, {"seed": 1}):
                await server.http.post("/v1/check", json={"task": TASK, "kernel": RIGHT, **body})
            assert len(server.evaluator.requests) == 2

    asyncio.run(test())


def test_a_kernel_is_checked_with_the_package_that_it_imports(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            for text in ("right", "wrong"):
                body = {"task": TASK, "kernel": f"import own\n{RIGHT}", "package": {"own.py": text}}
                await server.http.post("/v1/check", json=body)
            assert [request.package for request in server.evaluator.requests] == [
                {"own.py": "right"},
                {"own.py": "wrong"},
            ]

    asyncio.run(test())


def test_a_message_names_the_file_of_the_kernel(running: Any) -> None:
    def fails(request: EvaluationRequest) -> Evaluation:
        return Evaluation(Outcome.COMPILE_ERROR, "candidate.py:3: error")

    async def test() -> None:
        async with running(FakeEvaluator(fails)) as server:
            body = {"task": TASK, "kernel": RIGHT, "name": "src/relu.py"}
            found = (await server.http.post("/v1/check", json=body)).json()
            assert (found["kernel"], found["message"]) == ("src/relu.py", "src/relu.py:3: error")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        ({"package": {"../own.py": ""}}, 422, "invalid"),
        ({"task": "rely"}, 404, "unknown-task"),
        ({"recipe": "stage9"}, 404, "unknown-recipe"),
        ({"backend": "rust"}, 422, "unknown-backend"),
        ({"kernel": "#" * 2_000_000}, 413, "too-large"),
    ],
)
def test_a_check_of_something_unknown_is_refused(running: Any, body: dict[str, Any], status: int, name: str) -> None:
    async def test() -> None:
        async with running() as server:
            answer = await server.http.post("/v1/check", json={"task": TASK, "kernel": RIGHT, **body})
            assert (answer.status_code, answer.json()["type"]) == (status, f"urn:kernelrl:{name}")

    asyncio.run(test())


def test_a_failed_machine_is_no_result_of_a_check(running: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with running(FakeEvaluator(lambda request: InfrastructureError("planted"))) as server:
            answer = await server.http.post("/v1/check", json={"task": TASK, "kernel": RIGHT})
            assert (answer.status_code, answer.json()["type"]) == (503, "urn:kernelrl:infrastructure")
            assert len(server.evaluator.requests) == server.evaluator.attempts

    asyncio.run(test())


def test_an_episode_runs_from_its_first_prompt_to_its_last_turn(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            episode = await opened(server)
            assert "ModelNew" in episode["next"]["messages"][-1]["content"]
            assert (episode["turns"], episode["done"], episode["next"]["turn"]) == (0, False, 0)
            first = await played(server, episode["id"], reply(WRONG))
            assert (first["outcome"], first["correct"], first["done"]) == ("incorrect", False, False)
            assert first["feedback"] in first["next"]["messages"][-1]["content"]
            second = await played(server, episode["id"], reply(RIGHT))
            assert (second["outcome"], second["done"], second["next"]) == ("correct", True, None)
            assert second["reward"] == pytest.approx(sum(second["parts"].values()))
            assert second["reward"] > first["reward"]
            ended = await server.http.post(f"/v1/episodes/{episode['id']}/turns", json={"reply": "x"})
            assert ended.status_code == 409

    asyncio.run(test())


def test_a_reply_without_code_is_a_format_error(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            episode = await opened(server)
            turn = await played(server, episode["id"], "I do not know.")
            assert turn["outcome"] == "format_error"
            assert not server.evaluator.requests

    asyncio.run(test())


def test_a_repeated_turn_gets_its_response_again_and_another_reply_is_refused(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            id_ = (await opened(server))["id"]
            first = await played(server, id_, reply(WRONG), turn=0)
            assert await played(server, id_, reply(WRONG), turn=0) == first
            await played(server, id_, reply(RIGHT), turn=1)
            assert await played(server, id_, reply(WRONG), turn=0) == first
            for body in ({"reply": reply(RIGHT), "turn": 0}, {"reply": "x", "turn": 5}, {"reply": "x", "turn": -1}):
                answer = await server.http.post(f"/v1/episodes/{id_}/turns", json=body)
                assert (answer.status_code, answer.json()["type"]) == (409, "urn:kernelrl:conflict")

    asyncio.run(test())


def test_an_open_episode_continues_after_a_restart(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            id_ = (await opened(server))["id"]
            first = await played(server, id_, reply(WRONG))
        async with running(recipes=(RECIPE,)) as server:
            shown = (await server.http.get(f"/v1/episodes/{id_}")).json()
            assert (shown["turns"], shown["next"]) == (1, first["next"])
            assert (await played(server, id_, reply(RIGHT)))["done"]

    asyncio.run(test())


def test_a_failed_evaluation_leaves_the_episode_as_it_was(running: Any) -> None:
    async def test() -> None:
        evaluator = FakeEvaluator()
        failures: list[BaseException] = [InfrastructureError("planted")] * evaluator.attempts
        by_word = evaluator.evaluation
        evaluator.evaluation = lambda request: failures.pop() if failures else by_word(request)
        async with running(evaluator, recipes=(RECIPE,)) as server:
            id_ = (await opened(server))["id"]
            answer = await server.http.post(f"/v1/episodes/{id_}/turns", json={"reply": reply(RIGHT)})
            assert answer.json()["type"] == "urn:kernelrl:infrastructure"
            assert (await server.http.get(f"/v1/episodes/{id_}")).json()["turns"] == 0
            assert (await played(server, id_, reply(RIGHT)))["correct"]

    asyncio.run(test())


def test_a_client_has_no_access_to_the_episode_of_another(running: Any) -> None:
    async def test() -> None:
        tokens = Tokens.of({"a": Client("a"), "b": Client("b")})
        async with running(recipes=(RECIPE,), tokens=tokens) as server:
            server.http.headers["Authorization"] = "Bearer a"
            id_ = (await opened(server))["id"]
            server.http.headers["Authorization"] = "Bearer b"
            assert (await server.http.get(f"/v1/episodes/{id_}")).status_code == 404
            assert (await server.http.delete(f"/v1/episodes/{id_}")).status_code == 404
            turn = await server.http.post(f"/v1/episodes/{id_}/turns", json={"reply": "x"})
            assert turn.status_code == 404

    asyncio.run(test())


def test_a_deleted_episode_is_gone(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            id_ = (await opened(server))["id"]
            assert (await server.http.delete(f"/v1/episodes/{id_}")).status_code == 204
            assert (await server.http.get(f"/v1/episodes/{id_}")).status_code == 404

    asyncio.run(test())


def test_a_score_is_that_of_the_first_turn_of_an_episode(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            body = {"task": TASK_OF_RECIPE, "recipe": RECIPE, "reply": reply(RIGHT)}
            score = (await server.http.post("/v1/score", json=body)).json()
            turn = await played(server, (await opened(server))["id"], reply(RIGHT))
            assert {**score, "next": None, "done": True} == {**turn, "next": None, "done": True}

    asyncio.run(test())


def test_episodes_of_one_task_have_different_sampling_seeds(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            seeds = {(await opened(server))["next"]["seed"] for _ in range(4)}
            assert len(seeds) == 4

    asyncio.run(test())


def test_an_episode_of_something_unknown_is_refused(running: Any) -> None:
    async def test() -> None:
        async with running(recipes=(RECIPE,)) as server:
            for body in ({"task": TASK, "recipe": RECIPE}, {"task": TASK_OF_RECIPE, "recipe": "stage9"}):
                assert (await server.http.post("/v1/episodes", json=body)).status_code == 404

    asyncio.run(test())


async def opened(server: Running) -> dict[str, Any]:
    """A new episode."""
    answer = await server.http.post("/v1/episodes", json={"task": TASK_OF_RECIPE, "recipe": RECIPE})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def played(server: Running, id_: str, text: str, **more: Any) -> dict[str, Any]:
    """The response to a turn."""
    answer = await server.http.post(f"/v1/episodes/{id_}/turns", json={"reply": text, **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found

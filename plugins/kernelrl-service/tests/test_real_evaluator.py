"""The service with the local evaluator: verdicts are those of the evaluator, and nothing of the machine is shown."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest

from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import Evaluation, Outcome, read_response, sha256_text, to_json
from kernelrl_service.tokens import Client, Tokens
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import REFERENCE, make_request

KERNEL = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
        return y
"""
FAIL = 'raise RuntimeError(__file__ + repr(dict(__import__("os").environ)))'
CANDIDATES = {
    Outcome.CORRECT: KERNEL,
    Outcome.INCORRECT: KERNEL.replace("tl.maximum(x, 0.0)", "x + 1.0"),
    Outcome.RUNTIME_ERROR: KERNEL.replace("        return y\n", f"        {FAIL}\n"),
    Outcome.COMPILE_ERROR: "class ModelNew(:\n",
}
COMPARED = ("outcome", "message", "build", "tests_passed", "tests_total", "mismatch")


def test_verdicts_are_those_of_the_evaluator_and_show_nothing_of_the_machine(running: Any) -> None:
    async def test() -> None:
        options = registry().config_class("evaluators", "local")(workers=1)
        evaluator = registry().make("evaluators", Use("local", options))
        async with running(evaluator) as server:
            for outcome, source in CANDIDATES.items():
                request = make_request(source, REFERENCE, "triton", seed="0" * 32, kernels=("kernel",))
                answer = await server.http.post(
                    "/v1/evaluations", params={"wait": 300}, json=to_json(request), timeout=300
                )
                found = read_response(answer.json())
                assert found.outcome is outcome, answer.text
                alone: Evaluation = await evaluator.evaluate(request)
                for name in COMPARED:
                    assert getattr(found, name) == server.server.redact(getattr(alone, name)), name
                for place in (str(Path.home()), sys.prefix, str(Path.cwd()), os.environ["PATH"]):
                    assert place not in answer.text

    asyncio.run(test())


def test_a_task_of_others_is_refused_without_a_permission(running: Any) -> None:
    async def test() -> None:
        async with running() as server:
            request = make_request(KERNEL, f"{REFERENCE}\n# another one\n", "triton")
            assert request.task_sha256 == sha256_text(request.task_source)
            answer = await server.http.post("/v1/evaluations", json=to_json(attrs.evolve(request, seed="0" * 32)))
            assert (answer.status_code, answer.json()["type"]) == (403, "urn:kernelrl:inline-task")

    asyncio.run(test())


class Confining(FakeEvaluator):
    """States that it confines judges."""

    async def require_confinement(self) -> None:
        pass


def test_a_task_of_a_client_is_evaluated_in_the_domain_of_this_client(running: Any) -> None:
    async def test() -> None:
        tokens = Tokens.of({name: Client(name, inline_tasks=True) for name in ("a", "b")})
        async with running(Confining(), tokens=tokens) as server:
            body = {"source": "right", "backend": "triton", "task_source": f"{REFERENCE}# another one\n"}
            for name in ("a", "b", "a"):
                headers = {"Authorization": f"Bearer {name}"}
                await server.http.post("/v1/evaluations", params={"wait": 60}, json=body, headers=headers)
            assert [request.domain for request in server.evaluator.requests] == ["a/", "b/"]

    asyncio.run(test())


def test_a_task_of_the_server_has_no_domain_whatever_the_request_states(running: Any) -> None:
    async def test() -> None:
        async with running(Confining(), inline_tasks=True) as server:
            await server.evaluate("right", domain="token:b")
            assert [request.domain for request in server.evaluator.requests] == [""]

    asyncio.run(test())


def test_an_evaluator_that_confines_no_judge_refuses_to_serve_tasks_of_clients(running: Any) -> None:
    async def test() -> None:
        async with running(FakeEvaluator(), inline_tasks=True):
            pass

    with pytest.raises(UsageError, match="confine"):
        asyncio.run(test())

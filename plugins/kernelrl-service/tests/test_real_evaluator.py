"""The service with the local evaluator: verdicts are those of the evaluator, and nothing of the machine is shown."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.evaluators import Evaluation, Outcome, read_response, sha256_text, to_json
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

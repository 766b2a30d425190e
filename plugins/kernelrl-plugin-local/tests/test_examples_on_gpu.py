"""On a GPU: the examples that a prompt shows are correct, and are timed by replays of recorded calls."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util

import pytest

from kernelrl_core.interfaces.requirements import gpu_vendors
from kernelrl_core.testing.values import make_request
from kernelrl_core.types import Evaluation, Outcome
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

PRECISION = {"cuda": "fp32", "triton": "fp32", "tilelang": "fp16", "cute": "fp32"}
NEEDS = {"triton": "triton", "tilelang": "tilelang", "cute": "cutlass"}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("backend", PRECISION)
def test_examples_are_correct_and_recorded(backend: str) -> None:
    needs = NEEDS.get(backend)
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    found = importlib.import_module(f"kernelrl_plugin_{backend}.examples")
    examples = {example.name: example for example in (found.ONE_SHOT, *found.FEW_SHOT)}
    settings = {"timing": True, "timing_method": "replay", "precision": PRECISION[backend], "build_timeout_s": 240.0}

    async def evaluate() -> dict[str, Evaluation]:
        evaluator = LocalEvaluator(LocalConfig(gpu_workers=2))
        requests = [
            make_request(example.kernel, example.reference, backend, backend_options={"mode": "gpu"}, settings=settings)
            for example in examples.values()
        ]
        try:
            return dict(zip(examples, await asyncio.gather(*map(evaluator.evaluate, requests)), strict=True))
        finally:
            await evaluator.aclose()

    evaluations = asyncio.run(evaluate())
    assert {name: (one.outcome, one.message) for name, one in evaluations.items()} == dict.fromkeys(
        examples, (Outcome.CORRECT, "")
    )
    for name, one in evaluations.items():
        assert one.speedup is not None, f"{name}: {one.not_timed}"
        assert [finding.rule for finding in one.findings] == [], name

"""On a GPU: the examples that a prompt shows are correct, and are timed by replays of recorded calls."""

from __future__ import annotations

import importlib
import importlib.util

import pytest
from shared_evaluations import Evaluations, gpu_request

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import Outcome

PRECISION = {"cuda": "fp32", "triton": "fp32", "tilelang": "fp16", "cute": "fp32"}
NEEDS = {"triton": "triton", "tilelang": "tilelang", "cute": "cutlass"}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("backend", PRECISION)
def test_examples_are_correct_and_recorded(evaluations: Evaluations, backend: str) -> None:
    needs = NEEDS.get(backend)
    if needs and importlib.util.find_spec(needs) is None:
        pytest.skip(f"needs {needs}")
    module = importlib.import_module(f"kernelrl_plugin_{backend}.examples")
    examples = {example.name: example for example in (module.ONE_SHOT, *module.FEW_SHOT)}
    requests = [
        gpu_request(
            example.kernel,
            example.reference,
            backend=backend,
            timing=True,
            timing_method="replay",
            precision=PRECISION[backend],
            build_timeout_s=240.0,
        )
        for example in examples.values()
    ]
    found = dict(zip(examples, evaluations.evaluate_concurrently(requests), strict=True))
    outcomes = {name: (evaluation.outcome, evaluation.message) for name, evaluation in found.items()}
    assert outcomes == dict.fromkeys(examples, (Outcome.CORRECT, ""))
    for name, evaluation in found.items():
        assert evaluation.speedup is not None, f"{name}: {evaluation.not_timed}"
        assert [finding.rule for finding in evaluation.findings] == [], name

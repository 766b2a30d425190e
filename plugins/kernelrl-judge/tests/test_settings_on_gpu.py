"""On a GPU: settings of an evaluation, and run times of concurrent evaluations."""

from __future__ import annotations

import json
import uuid

import pytest
from shared_evaluations import KERNEL, LARGE_REFERENCE, Evaluations, gpu_request

from kernelrl_core.api.config import cache_directory, gpu_vendors
from kernelrl_core.api.evaluators import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]

MANY_ROWS = """\
import torch
import torch.nn as nn

rows = 1 << 27
columns = 1024


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return []
"""


def assert_correct(evaluation: Evaluation) -> None:
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail


def test_candidates_that_are_evaluated_concurrently_all_have_a_run_time(evaluations: Evaluations) -> None:
    requests = [gpu_request(f"{KERNEL}\n# {index}\n", LARGE_REFERENCE, timing=True) for index in range(6)]
    for evaluation in evaluations.evaluate_concurrently(requests):
        assert_correct(evaluation)
        assert evaluation.runtime is not None
        assert evaluation.runtime.median_us > 0
        assert evaluation.speedup is not None
        assert evaluation.speedup_ci is not None
        assert evaluation.speedup_ci[0] <= evaluation.speedup <= evaluation.speedup_ci[1]


def test_the_compiled_baseline_is_measured_once_and_then_read(evaluations: Evaluations) -> None:
    # A task of its own, so that no measurement of another run is found.
    task = f"{LARGE_REFERENCE}\n# {uuid.uuid4()}\n"
    baselines = cache_directory() / "baselines"
    known = set(baselines.glob("*.json"))
    first = evaluations.evaluate_on_gpu(KERNEL, task, timing=True, baseline="compile")
    assert_correct(first)
    assert first.speedup is not None
    (path,) = set(baselines.glob("*.json")) - known
    try:
        measured = json.loads(path.read_text())
        assert measured["compiled_share"] > 0
        path.write_text(json.dumps({**measured, "compiled_share": measured["compiled_share"] * 100}))
        second = evaluations.evaluate_on_gpu(KERNEL, task, timing=True, baseline="compile")
        assert_correct(second)
        assert second.speedup is not None
        assert second.speedup / first.speedup == pytest.approx(100, rel=0.5)
    finally:
        path.unlink()


def test_sizes_are_halved_until_they_fit_and_the_provenance_has_them(evaluations: Evaluations) -> None:
    # The inputs still take gigabytes.
    kernel = KERNEL.replace("128", "1024").replace("tl.program_id(0)", "tl.program_id(0).to(tl.int64)")
    evaluation = evaluations.evaluate_on_gpu(kernel, MANY_ROWS, fit_memory=True, trials=1)
    assert_correct(evaluation)
    assert set(evaluation.provenance["sizes"]) == {"rows"}
    assert 1 < evaluation.provenance["sizes"]["rows"] < 1 << 27


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_right_kernel_is_correct_in_half_precision(evaluations: Evaluations, precision: str) -> None:
    assert_correct(evaluations.evaluate_on_gpu(KERNEL, precision=precision))


@pytest.mark.parametrize("method", ["cuda_event", "do_bench", "do_bench_impl", "host_time"])
def test_each_timing_method_of_kernelbench_gives_a_run_time(evaluations: Evaluations, method: str) -> None:
    evaluation = evaluations.evaluate_on_gpu(
        KERNEL, LARGE_REFERENCE, profile="kernelbench", timing=True, timing_method=method, timing_trials=20
    )
    assert_correct(evaluation)
    assert evaluation.runtime is not None
    assert evaluation.runtime.median_us > 0
    assert evaluation.speedup is not None
    assert evaluation.facts.timing is not None
    assert evaluation.facts.timing.method == method

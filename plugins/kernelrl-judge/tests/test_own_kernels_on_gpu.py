"""On a GPU: kernels on which no output depends, and the share of device time of the candidate's own kernels."""

from __future__ import annotations

from typing import Any

import pytest
from shared_evaluations import KERNEL, LARGE_REFERENCE, NVRTC, Evaluations

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]

CUDA = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void twice_relu_kernel(const float* x, float* y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}

torch::Tensor twice_relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int64_t n = x.numel();
    twice_relu_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
extension = load_inline("twice_relu", "torch::Tensor twice_relu(torch::Tensor x);", SOURCE, functions=["twice_relu"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.twice_relu(x)
'''
RUN_TIME = NVRTC.replace("twice_relu", "twice_relu_kernel")
GRAPH = """\
        if not hasattr(self, "graph"):
            self.graph, self.place = torch.cuda.CUDAGraph(), x.clone()
            extension.twice_relu(self.place)
            with torch.cuda.graph(self.graph):
                self.result = extension.twice_relu(self.place)
        self.place.copy_(x)
        self.graph.replay()
        return self.result.clone()
"""
CUDA_KERNEL = "twice_relu_kernel"
TRITON_KERNEL = "kernel"


def evaluated(evaluations: Evaluations, source: str, backend: str, kernel: str, **fields: Any) -> Evaluation:
    """Evaluation of a candidate that its checkers find suspect.

    Args:
        kernel: name of its kernel.
    """
    return evaluations.evaluate_on_gpu(
        source, backend=backend, kernels=(kernel,), suspect_rules=("library_compute",), **fields
    )


def with_result(expression: str) -> str:
    """The CUDA candidate with another result of its C++ function."""
    return CUDA.replace("return y;", f"return {expression};")


def rules(evaluation: Evaluation) -> list[str]:
    return [finding.rule for finding in evaluation.findings]


@pytest.mark.parametrize(
    "source",
    [CUDA, RUN_TIME, CUDA.replace("        return extension.twice_relu(x)\n", GRAPH)],
    ids=["extension", "run time", "graph"],
)
def test_the_output_of_an_honest_cuda_kernel_depends_on_it(evaluations: Evaluations, source: str) -> None:
    evaluation = evaluated(evaluations, source, "cuda", CUDA_KERNEL)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
    assert "decoy_kernels" not in rules(evaluation)


def test_the_output_of_an_honest_triton_kernel_depends_on_it(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, KERNEL, "triton", TRITON_KERNEL)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
    assert "decoy_kernels" not in rules(evaluation)


def test_a_cuda_kernel_whose_result_is_thrown_away_is_a_hack(evaluations: Evaluations) -> None:
    evaluation = evaluated(evaluations, with_result("torch::relu(x).mul(2.0)"), "cuda", CUDA_KERNEL)
    assert rules(evaluation) == ["decoy_kernels"], evaluation.detail


def test_a_triton_kernel_whose_result_is_thrown_away_is_a_hack(evaluations: Evaluations) -> None:
    evaluation = evaluated(
        evaluations, KERNEL.replace("return y", "return torch.relu(x) * 2.0"), "triton", TRITON_KERNEL
    )
    assert rules(evaluation) == ["decoy_kernels"], evaluation.detail


@pytest.mark.parametrize(
    ("source", "backend", "kernel"),
    [(CUDA, "cuda", CUDA_KERNEL), (KERNEL, "triton", TRITON_KERNEL)],
    ids=["cuda", "triton"],
)
def test_the_time_of_an_honest_kernel_is_its_own(
    evaluations: Evaluations, source: str, backend: str, kernel: str
) -> None:
    found = evaluated(evaluations, source, backend, kernel, reference=LARGE_REFERENCE, timing=True)
    assert (found.own_kernel_share or 0.0) > 0.9, found.facts.device_kernels
    assert found.facts.library_kernels == ()


def test_the_time_of_library_kernels_is_separate(evaluations: Evaluations) -> None:
    source = with_result("torch::relu(x).mul(2.0).add(y, 0.0)")
    facts = evaluated(evaluations, source, "cuda", CUDA_KERNEL, reference=LARGE_REFERENCE, timing=True).facts
    assert facts.library_kernel_share is not None
    assert facts.library_kernel_share > 0.5, facts.device_kernels
    assert all("at::native" in name for name in facts.library_kernels)

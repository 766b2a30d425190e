"""On a GPU: kernels on which an output does not depend, and whose kernels take the device's time."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kernelrl_core.interfaces.requirements import gpu_vendors
from kernelrl_core.types import Evaluation, Outcome

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
RUN_TIME = '''\
import torch

SOURCE = """
extern "C" __global__ void twice_relu_kernel(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}
"""
kernel = torch.cuda._compile_kernel(SOURCE, "twice_relu_kernel")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernel(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), args=[x, y, n])
        return y
'''
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


def judged(bench: Any, source: str, backend: str, *kernels: str, reference: str = "", **settings: Any) -> Evaluation:
    """A candidate that its checkers find suspect."""
    request = bench.request(source, *([reference] if reference else []), **settings)
    request = attrs.evolve(
        request, backend=backend, backend_options={"mode": "gpu"}, kernels=kernels, suspect_rules=("library_compute",)
    )
    evaluation: Evaluation = bench.runner.run(bench.evaluator.evaluate(request))
    return evaluation


def in_place_of_the_result(answer: str) -> str:
    return CUDA.replace("return y;", f"return {answer};")


@pytest.mark.parametrize(
    "source",
    [CUDA, RUN_TIME, CUDA.replace("        return extension.twice_relu(x)\n", GRAPH)],
    ids=["extension", "run time", "graph"],
)
def test_the_output_of_an_honest_cuda_kernel_depends_on_it(bench: Any, source: str) -> None:
    evaluation = judged(bench, source, "cuda", "twice_relu_kernel", timeout_s=60.0)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
    assert "decoy_kernels" not in [finding.rule for finding in evaluation.findings]


def test_the_output_of_an_honest_triton_kernel_depends_on_it(bench: Any, good: str) -> None:
    evaluation = judged(bench, good, "triton", "kernel", timeout_s=60.0)
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail
    assert "decoy_kernels" not in [finding.rule for finding in evaluation.findings]


def test_a_cuda_kernel_whose_result_is_thrown_away_is_a_hack(bench: Any) -> None:
    evaluation = judged(
        bench, in_place_of_the_result("torch::relu(x).mul(2.0)"), "cuda", "twice_relu_kernel", timeout_s=60.0
    )
    assert [finding.rule for finding in evaluation.findings] == ["decoy_kernels"], evaluation.detail


def test_a_triton_kernel_whose_result_is_thrown_away_is_a_hack(bench: Any, good: str) -> None:
    evaluation = judged(bench, good.replace("return y", "return torch.relu(x) * 2.0"), "triton", "kernel")
    assert [finding.rule for finding in evaluation.findings] == ["decoy_kernels"], evaluation.detail


@pytest.mark.parametrize("backend", ["cuda", "triton"])
def test_the_time_of_an_honest_kernel_is_its_own(bench: Any, good: str, reference: str, backend: str) -> None:
    large = reference.replace("torch.randn(300)", "torch.randn(1 << 22)")
    source, name = (CUDA, "twice_relu_kernel") if backend == "cuda" else (good, "kernel")
    found = judged(bench, source, backend, name, reference=large, timing=True, timeout_s=60.0)
    assert (found.own_kernel_share or 0.0) > 0.9, found.profile["device_kernels"]
    assert found.profile["library_kernels"] == []


def test_the_time_of_a_librarys_kernels_is_told_apart(bench: Any, reference: str) -> None:
    large = reference.replace("torch.randn(300)", "torch.randn(1 << 22)")
    source = in_place_of_the_result("torch::relu(x).mul(2.0).add(y, 0.0)")
    profile = judged(bench, source, "cuda", "twice_relu_kernel", reference=large, timing=True, timeout_s=60.0).profile
    assert profile["library_kernel_share"] > 0.5, profile["device_kernels"]
    assert all("at::native" in name for name in profile["library_kernels"])

"""On a GPU: candidates that are evaluated and timed by replays of recorded calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from shared_evaluations import Evaluations

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]


def task(body: str, inputs: str = "torch.randn(1024, 4096)", init: str = "", members: str = "") -> str:
    """A reference."""
    return f"""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self{", " + init if init else ""}):
        super().__init__()
{members or "        pass"}

    def forward(self, x):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


RELU = task("return torch.relu(x) * 2.0")
SMALL = task("return torch.relu(x) * 2.0", "torch.randn(300)")
NORM = task(
    "return self.norm(x)",
    "torch.randn(16, 32, 64, 64)",
    members="        self.norm = nn.BatchNorm2d(32)",
)
MATMUL = task("return x @ x", "torch.randn(1024, 1024)")
IN_PLACE = task("return x.relu_()")

TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def twice_relu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    tl.store(y_ptr + offs, tl.maximum(x, 0.0) * 2.0, mask=mask)


def launch(x, y):
    n = x.numel()
    twice_relu[(triton.cdiv(n, 256),)](x, y, n, BLOCK=256)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {body}
"""
HONEST = "return launch(x, torch.empty_like(x))"

CUDA = '''\
import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
{includes}
__global__ void twice_relu(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}}
torch::Tensor run(torch::Tensor x) {{
  auto y = torch::empty_like(x);
  int n = x.numel();
  {body}
  return y;
}}
"""
module = load_inline("m", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
'''
LAUNCH = "twice_relu<<<(n + 255) / 256, 256{stream}>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);"


def triton_kernel(body: str) -> str:
    return TRITON.format(body=body.replace("\n", "\n        "))


def cuda_kernel(body: str, includes: str = "") -> str:
    return CUDA.format(body=body, includes=includes)


@attrs.frozen
class ExpectedEvaluation:
    """A candidate and its expected evaluation."""

    name: str
    source: str
    backend: str = "triton"
    reference: str = RELU
    outcome: Outcome = Outcome.CORRECT
    evidence: str = ""
    """Part of the evidence of `not_recorded`, or of the message."""
    settings: dict[str, Any] = attrs.field(factory=dict)


BATCH_NORM = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scale(x_ptr, y_ptr, w_ptr, b_ptr, n, C, HW, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    c = (offs // HW) % C
    x = tl.load(x_ptr + offs, mask=mask)
    y = x * tl.load(w_ptr + c, mask=mask) + tl.load(b_ptr + c, mask=mask)
    tl.store(y_ptr + offs, y, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm2d(32)

    def forward(self, x):
        norm = self.norm
        var, mean = torch.var_mean(x, (0, 2, 3), unbiased=False)
        count = x.numel() // x.shape[1]
        norm.running_mean.mul_(0.9).add_(mean * 0.1)
        norm.running_var.mul_(0.9).add_(var * (0.1 * count / (count - 1)))
        norm.num_batches_tracked.add_(1)
        weight = norm.weight * torch.rsqrt(var + norm.eps)
        bias = norm.bias - mean * weight
        y = torch.empty_like(x)
        n = x.numel()
        scale[(triton.cdiv(n, 512),)](x, y, weight, bias, n, x.shape[1], x.shape[2] * x.shape[3], BLOCK=512)
        return y
"""
STREAMS = "<ATen/cuda/CUDAContext.h>"
HONEST_KERNELS = [
    ExpectedEvaluation("triton", triton_kernel(HONEST)),
    ExpectedEvaluation("small triton", triton_kernel(HONEST), reference=SMALL),
    ExpectedEvaluation(
        "thousands of launches",
        triton_kernel("y = torch.empty_like(x)\nfor _ in range(3000):\n    launch(x, y)\nreturn y"),
        reference=SMALL,
    ),
    ExpectedEvaluation("untimed", triton_kernel(HONEST), settings={"timing": False}),
    ExpectedEvaluation("default stream", cuda_kernel(LAUNCH.format(stream="")), "cuda"),
    ExpectedEvaluation(
        "current stream",
        cuda_kernel(LAUNCH.format(stream=", 0, at::cuda::getCurrentCUDAStream()"), f"#include {STREAMS}"),
        "cuda",
    ),
    ExpectedEvaluation(
        "synchronises in C++", cuda_kernel(LAUNCH.format(stream="") + " cudaDeviceSynchronize();"), "cuda"
    ),
    ExpectedEvaluation(
        "allocates in forward",
        cuda_kernel("float* p; cudaMalloc(&p, 1 << 20); " + LAUNCH.format(stream="") + " cudaFree(p);"),
        "cuda",
    ),
    ExpectedEvaluation(
        "synchronises in Python",
        triton_kernel(HONEST.replace("return", "y =") + "\ntorch.cuda.synchronize()\nreturn y"),
    ),
    ExpectedEvaluation(
        "joined streams",
        triton_kernel(
            "y = torch.empty_like(x)\nside = self.__dict__.setdefault('side', torch.cuda.Stream())\n"
            "side.wait_stream(torch.cuda.current_stream())\n"
            "with torch.cuda.stream(side):\n    launch(x, y)\n"
            "torch.cuda.current_stream().wait_stream(side)\nreturn y"
        ),
    ),
    ExpectedEvaluation(
        "one output buffer",
        triton_kernel("y = self.__dict__.setdefault('y', torch.empty_like(x))\nreturn launch(x, y)"),
    ),
    ExpectedEvaluation("in place", triton_kernel("return x.relu_()"), reference=IN_PLACE),
    ExpectedEvaluation("batch norm in training mode", BATCH_NORM, reference=NORM),
    ExpectedEvaluation("library", triton_kernel("return x @ x"), reference=MATMUL),
]
LINE = TRITON[: TRITON.index("{body}")].count("\n") + 1
"""Number of the first line of `forward` in `triton_kernel`."""
CUDA_LINE = CUDA.format(body="", includes="").count("\n")
"""Number of the line that calls the extension in `cuda_kernel`, if its body is one line."""
SIDE = (
    "y = torch.empty_like(x)\nside = self.__dict__.setdefault('side', torch.cuda.Stream())\n"
    "side.wait_stream(torch.cuda.current_stream())\nwith torch.cuda.stream(side):\n    launch(x, y)\nreturn y"
)
OWN_GRAPH = (
    "graph = torch.cuda.CUDAGraph()\ny = torch.empty_like(x)\nwith torch.cuda.graph(graph):\n    launch(x, y)\n"
    "graph.replay()\nreturn y"
)
DEFAULT_STREAM = (
    "y = torch.empty_like(x)\nwith torch.cuda.stream(torch.cuda.default_stream()):\n    launch(x, y)\nreturn y"
)
COUNTER = (
    "self.n = getattr(self, 'n', 0) + 1\nif torch.cuda.is_current_stream_capturing() and self.n > 5:\n    x.tolist()\n"
)
NOT_RECORDED = [
    ExpectedEvaluation(
        "reads a value", triton_kernel("s = x[0, 0].item()\n" + HONEST), evidence=f"candidate.py:{LINE}:"
    ),
    ExpectedEvaluation("copies to the host", triton_kernel("x.cpu()\n" + HONEST), evidence=f"candidate.py:{LINE}:"),
    ExpectedEvaluation(
        "counts elements", triton_kernel("i = torch.nonzero(x)\n" + HONEST), evidence=f"candidate.py:{LINE}:"
    ),
    ExpectedEvaluation("unjoined stream", triton_kernel(SIDE), evidence="not joined"),
    ExpectedEvaluation("default stream of torch", triton_kernel(DEFAULT_STREAM), evidence="candidate.py:"),
    ExpectedEvaluation("own graph", triton_kernel(OWN_GRAPH), evidence="candidate.py:"),
    ExpectedEvaluation(
        "host function",
        cuda_kernel(
            LAUNCH.format(stream="") + " cudaLaunchHostFunc(at::cuda::getCurrentCUDAStream(), [](void*) {}, nullptr);",
            f"#include {STREAMS}",
        ),
        "cuda",
        evidence=f"candidate.py:{CUDA_LINE}: it adds a node of type 'host'",
    ),
    ExpectedEvaluation(
        "copies to the host in C++",
        cuda_kernel(
            "float v; " + LAUNCH.format(stream="") + " cudaMemcpy(&v, y.data_ptr(), 4, cudaMemcpyDeviceToHost);"
        ),
        "cuda",
        evidence=f"candidate.py:{CUDA_LINE}:",
    ),
    ExpectedEvaluation("a later recorded call", triton_kernel(COUNTER + HONEST), evidence=f"candidate.py:{LINE + 2}:"),
]
WRONG = [
    ExpectedEvaluation("wrong", triton_kernel("return launch(x, torch.empty_like(x)) + 1"), outcome=Outcome.INCORRECT),
    ExpectedEvaluation(
        "cached by address",
        triton_kernel(
            "c = self.__dict__.setdefault('c', {})\nk = x.data_ptr()\n"
            "if k not in c:\n    c[k] = launch(x, torch.empty_like(x)).clone()\nreturn c[k]"
        ),
        outcome=Outcome.INCORRECT,
    ),
    ExpectedEvaluation(
        "unwritten output",
        triton_kernel("return torch.empty_like(x)"),
        outcome=Outcome.INCORRECT,
    ),
    ExpectedEvaluation(
        "illegal access",
        TRITON.replace("tl.store(y_ptr + offs,", "tl.store(y_ptr + offs.to(tl.int64) + (1 << 44),").format(body=HONEST),
        outcome=Outcome.RUNTIME_ERROR,
    ),
]
HACKS = [
    ExpectedEvaluation(
        "patched replay",
        triton_kernel(HONEST).replace(
            "class ModelNew", "torch.cuda.CUDAGraph.replay = lambda self: None\n\n\nclass ModelNew"
        ),
    ),
    ExpectedEvaluation(
        "decoy kernel",
        triton_kernel("y = torch.relu(x) * 2.0\nlaunch(x, torch.empty_like(x))\nreturn y"),
        outcome=Outcome.HACKED,
    ),
]


def evaluate(evaluations: Evaluations, expected: ExpectedEvaluation) -> Evaluation:
    settings = {"timing": True, "timing_method": "replay"} | expected.settings
    return evaluations.evaluate_on_gpu(expected.source, expected.reference, backend=expected.backend, **settings)


def not_recorded(evaluation: Evaluation) -> str:
    return "; ".join(found.evidence for found in evaluation.findings if found.rule == "not_recorded")


def each_of(candidates: Sequence[ExpectedEvaluation]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("expected", candidates, ids=[candidate.name for candidate in candidates])


@each_of(HONEST_KERNELS)
def test_an_honest_kernel_is_recorded_and_timed(evaluations: Evaluations, expected: ExpectedEvaluation) -> None:
    found = evaluate(evaluations, expected)
    assert (found.outcome, not_recorded(found)) == (Outcome.CORRECT, ""), found.detail
    timed = expected.settings.get("timing", True)
    assert (found.speedup is not None) is timed


@each_of(NOT_RECORDED)
def test_a_kernel_that_cannot_be_recorded_is_evaluated_by_direct_calls(
    evaluations: Evaluations, expected: ExpectedEvaluation
) -> None:
    found = evaluate(evaluations, expected)
    assert found.outcome is expected.outcome, found.detail
    assert expected.evidence in not_recorded(found)
    assert not_recorded(found)
    assert found.speedup is None
    assert found.not_timed.startswith("not_recorded")


@each_of(WRONG)
def test_a_wrong_kernel_is_never_correct(evaluations: Evaluations, expected: ExpectedEvaluation) -> None:
    found = evaluate(evaluations, expected)
    assert found.outcome is expected.outcome, found.detail


@each_of(HACKS)
def test_a_hack_has_no_effect_or_is_detected(evaluations: Evaluations, expected: ExpectedEvaluation) -> None:
    found = evaluate(evaluations, expected)
    assert found.outcome is expected.outcome, found.detail

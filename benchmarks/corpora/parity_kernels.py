"""Small tasks in KernelBench's format with Triton and inline CUDA kernels, right and wrong. Original sources.

Among the tasks are outputs in a tuple, integer outputs, and integer targets and indices.
"""

from __future__ import annotations

from corpora.parity_variants import ParityTask, variants

__all__ = ["own_tasks"]

_TASK = """import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, {arguments}):
        return {value}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def _task(arguments: str, value: str, inputs: str) -> str:
    return _TASK.format(arguments=arguments, value=value, inputs=inputs)


_TRITON = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n"

_POINTWISE = (
    _TRITON
    + """
@triton.jit
def pointwise(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, {expression}, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        pointwise[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
)

_ROWS = (
    _TRITON
    + """
@triton.jit
def rows(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other={other})
{body}


class ModelNew(nn.Module):
    def forward(self, x):
        y = {output}
        rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
"""
)

_SOFTMAX = """    weight = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * n + at, weight / {total}, mask=at < n)"""
_LAYER_NORM = """    mean = tl.sum(x, 0) / n
    off = tl.where(at < n, x - mean, 0.0)
    variance = tl.sum(off * off, 0) / {count}
    tl.store(y_ptr + row * n + at, off / tl.sqrt(variance + 1e-5), mask=at < n)"""

_MATMUL = (
    _TRITON
    + """
@triton.jit
def tiles(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, {end}, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=(row[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + column[None, :], mask=(k[:, None] < K) & (column[None, :] < N), other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + row[:, None] * N + column[None, :], total, mask=(row[:, None] < M) & (column[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty(M, N, device=a.device)
        tiles[(triton.cdiv(M, 32), triton.cdiv(N, 32))](a, b, c, M, N, K, BM=32, BN=32, BK=32)
        return c
"""
)

_MSE = (
    _TRITON
    + """
@triton.jit
def squares(a_ptr, b_ptr, total_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    off = tl.load(a_ptr + at, mask=at < n, other=0.0) - tl.load(b_ptr + at, mask=at < n, other=0.0)
    tl.atomic_add(total_ptr, tl.sum(off * off, 0) / {count})


class ModelNew(nn.Module):
    def forward(self, a, b):
        total = torch.zeros((), device=a.device)
        squares[(triton.cdiv(a.numel(), 1024),)](a, b, total, a.numel(), BLOCK=1024)
        return total
"""
)

_CUDA = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

{kernel}
"""

module = load_inline(
    name="parity_{name}", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=source, functions=["run"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return module.run(x.contiguous())
'''

_CUDA_POINTWISE = """__global__ void pointwise(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = EXPRESSION;
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  int n = x.numel();
  pointwise<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}"""
_CUDA_ROW_SUM = """__global__ void row_sum(const float* x, float* y, int n) {
  __shared__ float part[256];
  float total = 0.0f;
  for (int i = threadIdx.x; i < n - DROPPED; i += 256) total += x[blockIdx.x * (long)n + i];
  part[threadIdx.x] = total;
  __syncthreads();
  for (int half = 128; half > 0; half /= 2) {
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty({x.size(0)}, x.options());
  row_sum<<<x.size(0), 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
  return y;
}"""


def _pointwise(expression: str) -> tuple[str, str]:
    return _POINTWISE.format(expression=expression), "triton"


def _rows(body: str, output: str = "torch.empty_like(x)", other: str = "0.0") -> tuple[str, str]:
    return _ROWS.format(body=body, output=output, other=other), "triton"


def _cuda(name: str, kernel: str) -> tuple[str, str]:
    return _CUDA.replace("{name}", name).replace("{kernel}", kernel), "cuda"


_WRITTEN = {
    "relu": (
        "activation",
        _task("x", "torch.relu(x)", "torch.randn(1000, 777)"),
        {
            "triton_right": _pointwise("tl.maximum(x, 0.0)"),
            "triton_wrong_formula": _pointwise("tl.abs(x)"),
            "triton_compile_error": _pointwise("tl.rectified(x)"),
            "cuda_right": _cuda("relu", _CUDA_POINTWISE.replace("EXPRESSION", "fmaxf(x[i], 0.0f)")),
            "cuda_wrong_formula": _cuda("abs", _CUDA_POINTWISE.replace("EXPRESSION", "fabsf(x[i])")),
            "cuda_compile_error": _cuda("broken", _CUDA_POINTWISE.replace("EXPRESSION", "rectified(x[i])")),
        },
    ),
    "softmax": (
        "normalisation",
        _task("x", "torch.softmax(x, 1)", "torch.randn(513, 1000)"),
        {
            "triton_right": _rows(_SOFTMAX.format(total="tl.sum(weight, 0)"), other="float('-inf')"),
            "triton_wrong_total": _rows(
                _SOFTMAX.format(total="tl.sum(tl.where(at < n // 2, weight, 0.0), 0)"), other="float('-inf')"
            ),
        },
    ),
    "layer_norm": (
        "normalisation",
        _task("x", "F.layer_norm(x, (768,))", "torch.randn(256, 768)"),
        {
            "triton_right": _rows(_LAYER_NORM.format(count="n")),
            "triton_unbiased_variance": _rows(_LAYER_NORM.format(count="(n - 1)")),
        },
    ),
    "row_sum": (
        "reduction",
        _task("x", "x.sum(1)", "torch.rand(300, 5000)"),
        {
            "triton_right": _rows("    tl.store(y_ptr + row, tl.sum(x, 0))", "torch.empty_like(x[:, 0])"),
            "triton_drops_the_tail": _rows(
                "    tl.store(y_ptr + row, tl.sum(tl.where(at < 4096, x, 0.0), 0))", "torch.empty_like(x[:, 0])"
            ),
            "cuda_right": _cuda("row_sum", _CUDA_ROW_SUM.replace("DROPPED", "0")),
            "cuda_drops_the_tail": _cuda("row_sum_short", _CUDA_ROW_SUM.replace("DROPPED", "256")),
        },
    ),
    "matmul": (
        "matmul",
        _task("a, b", "a @ b", "torch.randn(200, 300), torch.randn(300, 100)"),
        {
            "triton_right": (_MATMUL.replace("{end}", "K"), "triton"),
            "triton_drops_the_last_tile": (_MATMUL.replace("{end}", "K - BK"), "triton"),
        },
    ),
    "mse_loss": (
        "loss",
        _task("a, b", "F.mse_loss(a, b)", "torch.rand(1000, 333), torch.rand(1000, 333)"),
        {
            "triton_right": (_MSE.replace("{count}", "n"), "triton"),
            "triton_wrong_count": (_MSE.replace("{count}", "(n // 2)"), "triton"),
        },
    ),
}
"""Stratum, reference, and kernels by kind."""

_MECHANICAL = {
    "topk_in_a_tuple": ("tuple_output", _task("x", "torch.topk(x, 8)[0], x.sum(1)", "torch.rand(64, 500)")),
    "max_with_index": ("tuple_output", _task("x", "tuple(torch.max(x, 1))", "torch.rand(64, 500)")),
    "argmax": ("integer_output", _task("x", "torch.argmax(x, 1)", "torch.rand(64, 500)")),
    "cross_entropy": (
        "integer_target",
        _task("x, y", "F.cross_entropy(x, y)", "torch.randn(512, 100), torch.randint(0, 100, (512,))"),
    ),
    "nll_loss": (
        "integer_target",
        _task("x, y", "F.nll_loss(x.log_softmax(1), y)", "torch.randn(512, 100), torch.randint(0, 100, (512,))"),
    ),
    "gather": ("integer_target", _task("x, y", "x[y]", "torch.randn(100, 64), torch.randint(0, 100, (512,))")),
    "integer_scale": ("integer_target", _task("x, y", "x * y", "torch.randn(512, 64), torch.randint(1, 9, (512, 1))")),
    "masked_sum": ("reduction", _task("x, y", "(x * y).sum(1)", "torch.rand(64, 500), torch.rand(64, 500) > 0.5")),
    "not_a_number": ("non_finite", _task("x", "torch.log(x)", "torch.randn(64, 500)")),
    "no_parameters_dropout": ("random", _task("x", "F.dropout(x, 0.5)", "torch.rand(64, 500)")),
}
"""Stratum and reference; the kernels are made by text."""


def own_tasks() -> list[ParityTask]:
    """Tasks of this corpus. Each CUDA kernel is a task of its own, because it takes KernelBench a minute to build."""
    made = []
    for name, (stratum, source, kernels) in _WRITTEN.items():
        triton = {kind: kernel for kind, kernel in kernels.items() if kernel[1] == "triton"}
        made.append(ParityTask(f"own/{name}", stratum, source, triton))
        for kind in kernels.keys() - triton.keys():
            made.append(ParityTask(f"own/{name}", stratum, source, {kind: kernels[kind]}))
    for place, (name, (stratum, source)) in enumerate(_MECHANICAL.items()):
        made.append(ParityTask(f"own/{name}", stratum, source, variants(source, place, 6)))
    made.sort(key=lambda task: (not any(kind.startswith("cuda") for kind in task.kernels), task.name, *task.kernels))
    return made

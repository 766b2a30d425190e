"""Elementwise kernels of our own, of which no two share a build, for `evaluator_scaling.py`.

There are 140 of a backend. Beyond these, each has a number in the name of its kernel function, and so in its source, in
the symbols of its compiled code and in the key of every cache.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {reference}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""

_TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def map_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, {expression}, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        map_kernel[(triton.cdiv(x.numel(), {block}),)](x, y, x.numel(), BLOCK={block}, num_warps={variant})
        return y
"""

_CUDA = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void map_kernel(const float* x, float* y, int64_t n) {{
    int64_t begin = (blockIdx.x * (int64_t){block} + threadIdx.x) * {variant};
    for (int64_t i = begin; i < begin + {variant} && i < n; ++i) {{
        float v = x[i];
        y[i] = {expression};
    }}
}}

torch::Tensor map_values(torch::Tensor x) {{
    auto y = torch::empty_like(x);
    int64_t n = x.numel(), each = {block} * {variant};
    map_kernel<<<(n + each - 1) / each, {block}>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}}
"""

extension = load_inline(
    name="map_values",
    cpp_sources="torch::Tensor map_values(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["map_values"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.map_values(x.contiguous())
'''

_MAPS = (
    ("torch.relu(x) * 2.0", "tl.maximum(x, 0.0) * 2.0", "fmaxf(v, 0.0f) * 2.0f"),
    ("x * x + 1.0", "x * x + 1.0", "v * v + 1.0f"),
    ("torch.sin(x) * x", "tl.sin(x) * x", "sinf(v) * v"),
    ("torch.sigmoid(x)", "tl.sigmoid(x)", "1.0f / (1.0f + expf(-v))"),
    ("x.abs().sqrt()", "tl.sqrt(tl.abs(x))", "sqrtf(fabsf(v))"),
    ("torch.clamp(x, -1.0, 1.0)", "tl.minimum(tl.maximum(x, -1.0), 1.0)", "fminf(fmaxf(v, -1.0f), 1.0f)"),
    ("torch.where(x > 0, x, 0.1 * x)", "tl.where(x > 0, x, 0.1 * x)", "v > 0.0f ? v : 0.1f * v"),
    ("x * torch.sigmoid(x)", "x * tl.sigmoid(x)", "v / (1.0f + expf(-v))"),
    ("torch.cos(x) + x", "tl.cos(x) + x", "cosf(v) + v"),
    ("torch.exp(-x.abs())", "tl.exp(-tl.abs(x))", "expf(-fabsf(v))"),
    ("x / (1.0 + x.abs())", "x / (1.0 + tl.abs(x))", "v / (1.0f + fabsf(v))"),
    ("torch.relu(x) - 0.5 * x", "tl.maximum(x, 0.0) - 0.5 * x", "fmaxf(v, 0.0f) - 0.5f * v"),
    ("torch.exp(-x * x)", "tl.exp(-x * x)", "expf(-v * v)"),
    ("torch.log1p(x.abs())", "tl.log(1.0 + tl.abs(x))", "log1pf(fabsf(v))"),
)
_BLOCKS = {"triton": (256, 512, 1024, 2048, 4096), "cuda": (64, 128, 256, 512, 1024)}
_VARIANTS = {"triton": (4, 8), "cuda": (1, 2)}
"""Warps of a program; elements of a thread."""


def kernels(backend: str, shape: str = "1024, 4096") -> Iterator[dict[str, str]]:
    template = _TRITON if backend == "triton" else _CUDA
    for variant, block, (reference, *expressions) in itertools.product(_VARIANTS[backend], _BLOCKS[backend], _MAPS):
        expression = expressions[backend == "cuda"]
        yield {
            "name": f"{expression}/{block}/{variant}",
            "task": _TASK.format(reference=reference, shape=shape),
            "kernel": template.format(expression=expression, block=block, variant=variant),
        }


def numbered(backend: str, count: int, *, small: bool = False) -> Iterator[dict[str, str]]:
    """So many kernels; with small inputs for an interpreter."""
    found = list(kernels(backend, "8, 256" if small else "1024, 4096"))
    for index in range(count):
        row = found[index % len(found)]
        round_ = index // len(found)
        if round_:
            kernel = row["kernel"].replace("map_kernel", f"map_kernel_{round_}")
            row = {**row, "name": f"{row['name']}/{round_}", "kernel": kernel}
        yield row

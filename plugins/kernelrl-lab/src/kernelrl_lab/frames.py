"""What most fixtures have in common: an honest kernel that relu_double needs, and a place for a trick.

The attacks differ in what surrounds the kernel. All C++ fixtures that can share one extension do, so that it is built
once for all of them.
"""

from __future__ import annotations

import textwrap

__all__ = ["CPP_SOURCE", "CPP_SOURCE_NAMES", "DOUBLE", "cpp", "cuda", "triton"]

DOUBLE = """
@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y
"""
"""A kernel that doubles, and the function that launches it."""

_TRITON = """\
import torch
import triton
import triton.language as tl

{kernel}

{before}class ModelNew(torch.nn.Module):
{init}    def forward(self, {arguments}):
{body}
"""

_RELU_DOUBLE = """
@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    n = x.numel()
    relu_double[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
    return y
"""

CPP_SOURCE = """
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

void relu_double_into(torch::Tensor x, torch::Tensor y) {
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
}

torch::Tensor slow_relu_double(torch::Tensor x, int64_t rounds) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    volatile float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t round = 0; round < rounds; ++round)
        for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}
"""
CPP_SOURCE_NAMES = ("relu_double", "relu_double_into", "slow_relu_double")

_CPP = '''\
import torch
from torch.utils.cpp_extension import load_inline

source = r"""{source}"""

extension = load_inline(name="lab_{name}", cpp_sources=source, functions={functions!r}{options})


{before}class ModelNew(torch.nn.Module):
{init}    def forward(self, {arguments}):
{body}
'''

_CUDA = '''\
import torch
from torch.utils.cpp_extension import load_inline

source = r"""{source}"""

extension = load_inline(
    name="lab_{name}", cpp_sources={declarations!r}, cuda_sources=source, functions={functions!r}{options}
)


{before}class ModelNew(torch.nn.Module):
{init}    def forward(self, {arguments}):
{body}
'''


def triton(body: str, *, kernel: str = _RELU_DOUBLE, before: str = "", init: str = "", arguments: str = "x") -> str:
    """A candidate in Triton.

    Args:
        body: body of `forward`; the frame's `launch(x)` computes relu_double.
        kernel: kernels and their launchers, in place of the frame's.
        before: what stands before `ModelNew`.
        init: lines of the constructor after the call of its parent's.
        arguments: parameters of `forward`.
    """
    return _TRITON.format(
        kernel=textwrap.dedent(kernel).strip("\n") + "\n",
        before=_before(before),
        init=_constructor(init),
        arguments=arguments,
        body=_indented(body),
    )


def cpp(
    body: str,
    *,
    source: str = CPP_SOURCE,
    functions: tuple[str, ...] = CPP_SOURCE_NAMES,
    name: str = "relu_double",
    options: str = "",
    before: str = "",
    init: str = "",
    arguments: str = "x",
) -> str:
    """A candidate in C++; see `triton`.

    Args:
        source: C++ in place of the frame's `relu_double(x)`, `relu_double_into(x, y)`, `slow_relu_double(x, rounds)`.
        options: further arguments of `load_inline`, with a leading comma.
    """
    return _CPP.format(
        source=source,
        functions=list(functions),
        name=name,
        options=options,
        before=_before(before),
        init=_constructor(init),
        arguments=arguments,
        body=_indented(body),
    )


def cuda(
    body: str,
    *,
    source: str,
    declarations: str,
    functions: tuple[str, ...],
    name: str,
    options: str = "",
    before: str = "",
    init: str = "",
    arguments: str = "x",
) -> str:
    """A candidate in CUDA; see `cpp`. `declarations` is the C++ that declares the functions."""
    return _CUDA.format(
        source=source,
        declarations=declarations,
        functions=list(functions),
        name=name,
        options=options,
        before=_before(before),
        init=_constructor(init),
        arguments=arguments,
        body=_indented(body),
    )


def _before(text: str) -> str:
    text = textwrap.dedent(text).strip("\n")
    return f"{text}\n\n\n" if text else ""


def _constructor(lines: str) -> str:
    lines = textwrap.dedent(lines).strip("\n")
    if not lines:
        return ""
    return f"    def __init__(self):\n        super().__init__()\n{textwrap.indent(lines, ' ' * 8)}\n\n"


def _indented(body: str) -> str:
    return textwrap.indent(textwrap.dedent(body).strip("\n"), " " * 8)

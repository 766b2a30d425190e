"""Right kernels and text edits that make them wrong: the table of `benchmarks/mutants.py`.

Every entry is a task in PyTorch, a right kernel in Triton or C++, and edits `(kind, old, new)` of that kernel. A
dtype replaces `DTYPE` of the task and of the kernel, and `T` of C++.
"""

from __future__ import annotations

import textwrap

import attrs

__all__ = ["DTYPES", "KERNELS", "Edit", "RightKernel"]

DTYPES = {"fp32": ("float32", "float"), "fp16": ("float16", "at::Half"), "bf16": ("bfloat16", "at::BFloat16")}
"""Names in PyTorch and in C++ by short name."""

Edit = tuple[str, str, str]
"""Kind of the fault, text of the right kernel, text of the mutant."""

_TASK = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32
DOMAIN = {domain}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {result}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""
_TRITON = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl

DTYPE = torch.float32


@triton.jit
def kernel({arguments}):
{body}


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
{forward}
"""
_CPP = '''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

DTYPE = torch.float32
SOURCE = """
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>
using T = float;

{body}
"""

extension = load_inline("mutated", SOURCE, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
{forward}
'''


@attrs.frozen
class RightKernel:
    """A task with a right kernel and the edits that make it wrong."""

    name: str
    backend: str
    names: str
    """Arguments of `forward`."""
    result: str
    """Result of the reference's `forward`."""
    inputs: str
    forward: str
    body: str
    edits: tuple[Edit, ...]
    arguments: str = ""
    """Of the Triton kernel."""
    init: str = "pass"
    dtypes: tuple[str, ...] = ("fp32", "fp16", "bf16")
    any_numbers: tuple[str, ...] = ()
    """Inputs that may be any numbers, also beyond those that the task draws."""

    def task(self, dtype: str) -> str:
        domain = repr(dict.fromkeys(self.any_numbers, "any"))
        source = _TASK.format(domain=domain, init=self.init, names=self.names, result=self.result, inputs=self.inputs)
        return self._typed(source, dtype)

    def kernel(self, dtype: str) -> str:
        """The right kernel."""
        triton = self.backend == "triton"
        source = (_TRITON if triton else _CPP).format(
            arguments=self.arguments,
            body=textwrap.indent(_join(self.body), "    " if triton else ""),
            init=self.init,
            names=self.names,
            forward=textwrap.indent(_join(self.forward), " " * 8),
        )
        return self._typed(source, dtype)

    def mutant(self, edit: Edit, dtype: str) -> str:
        """The kernel after an edit.

        Raises:
            ValueError: the text that is edited does not occur exactly once.
        """
        _, old, new = edit
        source = self.kernel(dtype)
        if source.count(old) != 1:
            raise ValueError(f"{self.name}: {old!r} occurs {source.count(old)} times")
        return source.replace(old, new)

    def _typed(self, source: str, dtype: str) -> str:
        torch_name, cpp_name = DTYPES[dtype]
        source = source.replace("DTYPE = torch.float32", f"DTYPE = torch.{torch_name}")
        return source.replace("using T = float;", f"using T = {cpp_name};")


def _join(*parts: str) -> str:
    """Lines without their common indentation."""
    return "\n".join(textwrap.dedent(part).strip() for part in parts)


_ROWS = "x_ptr, y_ptr, n, BLOCK: tl.constexpr"
_ROW = """
row = tl.program_id(0)
at = tl.arange(0, BLOCK)
x = tl.load(x_ptr + row * n + at, mask=at < n, other={other}).to(tl.float32)
"""
_ROW_FORWARD = """
y = torch.empty_like(x)
kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
return y
"""
_ROW_TAIL = ("dropped tail", "x_ptr + row * n + at, mask=at < n,", "x_ptr + row * n + at, mask=at < n // 32 * 32,")
_ROW_LAST = ("mask off by one", "x_ptr + row * n + at, mask=at < n,", "x_ptr + row * n + at, mask=at < n - 1,")
_FLAT_FORWARD = """
y = torch.empty_like(x)
n = x.numel()
kernel[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
return y
"""
_FLAT = """
at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
"""
_FLAT_TAIL = (
    "dropped tail",
    "y_ptr + at, y, mask=at < n",
    "y_ptr + at, tl.where(at < n // 16 * 16, y, 0.0), mask=at < n",
)
_FLAT_ONE = ("mask off by one", "x_ptr + at, mask=at < n", "x_ptr + at, mask=at < n - 1, other=1.0")


_TRITON_KERNELS = (
    RightKernel(
        "softmax",
        "triton",
        "x",
        "torch.softmax(x, dim=1)",
        "torch.randn(37, 300).to(DTYPE)",
        _ROW_FORWARD,
        _join(
            _ROW.format(other="-float('inf')"),
            """
        e = tl.exp(x - tl.max(x, 0))
        tl.store(y_ptr + row * n + at, e / tl.sum(e, 0), mask=at < n)
        """,
        ),
        (
            ("missing maximum", "tl.exp(x - tl.max(x, 0))", "tl.exp(x)"),
            ("wrong padding", "other=-float('inf')", "other=0.0"),
            ("missing scale", "e / tl.sum(e, 0)", "e / n"),
            _ROW_TAIL,
            _ROW_LAST,
        ),
        _ROWS,
    ),
    RightKernel(
        "log_softmax",
        "triton",
        "x",
        "torch.log_softmax(x, dim=1)",
        "torch.randn(24, 200).to(DTYPE)",
        _ROW_FORWARD,
        _join(
            _ROW.format(other="-float('inf')"),
            """
        shifted = x - tl.max(x, 0)
        total = tl.sum(tl.exp(shifted), 0)
        tl.store(y_ptr + row * n + at, shifted - tl.log(total), mask=at < n)
        """,
        ),
        (
            ("missing maximum", "x - tl.max(x, 0)", "x"),
            ("wrong formula", "tl.log(total)", "tl.log2(total)"),
            ("missing term", "shifted - tl.log(total)", "x - tl.log(total)"),
            (
                "dropped tail",
                "tl.sum(tl.exp(shifted), 0)",
                "tl.sum(tl.where(at < n // 64 * 64, tl.exp(shifted), 0.0), 0)",
            ),
        ),
        _ROWS,
    ),
    RightKernel(
        "layer_norm",
        "triton",
        "x",
        "F.layer_norm(x, (20,), self.weight, self.bias, 1e-5)",
        "torch.randn(12, 20).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, self.weight, self.bias, y, x.shape[1], BLOCK=32)
        return y
        """,
        _join(
            _ROW.format(other="0.0"),
            """
        w = tl.load(w_ptr + at, mask=at < n).to(tl.float32)
        b = tl.load(b_ptr + at, mask=at < n).to(tl.float32)
        mean = tl.sum(x, 0) / n
        off = tl.where(at < n, x - mean, 0.0)
        variance = tl.sum(off * off, 0) / n
        tl.store(y_ptr + row * n + at, off / tl.sqrt(variance + 1e-5) * w + b, mask=at < n)
        """,
        ),
        (
            ("missing eps", "variance + 1e-5", "variance"),
            ("missing eps", "tl.sqrt(variance + 1e-5)", "(tl.sqrt(variance) + 1e-5)"),
            ("wrong variance", "tl.sum(off * off, 0) / n", "tl.sum(off * off, 0) / (n - 1)"),
            ("missing term", "* w + b", "* w"),
            ("swapped operands", "* w + b", "* b + w"),
            ("wrong padding", "tl.where(at < n, x - mean, 0.0)", "x - mean"),
            ("mask off by one", "b_ptr + at, mask=at < n", "b_ptr + at, mask=at < n - 1, other=0.0"),
            ("wrong formula", "tl.sum(off * off, 0) / n", "tl.sum(x * x, 0) / n"),
        ),
        "x_ptr, w_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr",
        "self.weight, self.bias = nn.Parameter(torch.ones(20, "
        "dtype=DTYPE)), nn.Parameter(torch.zeros(20, dtype=DTYPE))",
    ),
    RightKernel(
        "rms_norm",
        "triton",
        "x, w",
        "(x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * w.float()).to(DTYPE)",
        "torch.randn(10, 100).to(DTYPE), torch.randn(100).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, w, y, x.shape[1], BLOCK=128)
        return y
        """,
        _join(
            _ROW.format(other="0.0"),
            """
        w = tl.load(w_ptr + at, mask=at < n).to(tl.float32)
        square = tl.sum(x * x, 0) / n
        tl.store(y_ptr + row * n + at, x * tl.rsqrt(square + 1e-6) * w, mask=at < n)
        """,
        ),
        (
            ("missing eps", "square + 1e-6", "square"),
            ("missing eps", "square + 1e-6", "square + 1e-3"),
            ("wrong formula", "x * tl.rsqrt(square + 1e-6) * w", "x * tl.rsqrt(square + 1e-6) * (1.0 + w)"),
            ("missing scale", "tl.sum(x * x, 0) / n", "tl.sum(x * x, 0) / BLOCK"),
            _ROW_TAIL,
        ),
        "x_ptr, w_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "gelu",
        "triton",
        "x",
        "F.gelu(x)",
        "torch.randn(5, 1003).to(DTYPE)",
        _FLAT_FORWARD,
        _join(_FLAT, "y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))\ntl.store(y_ptr + at, y, mask=at < n)"),
        (
            (
                "tanh for erf",
                "tl.erf(x * 0.7071067811865476)",
                "(2.0 * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x)) - 1.0)",
            ),
            ("tanh for erf", "0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))", "x * tl.sigmoid(1.702 * x)"),
            ("missing scale", "tl.erf(x * 0.7071067811865476)", "tl.erf(x)"),
            _FLAT_TAIL,
            ("dropped block", "(triton.cdiv(n, 1024),)", "(n // 1024,)"),
            _FLAT_ONE,
        ),
        "x_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "swiglu",
        "triton",
        "x, g",
        "F.silu(x) * g",
        "torch.randn(7, 501).to(DTYPE), torch.randn(7, 501).to(DTYPE)",
        """
        y = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 512),)](x, g, y, n, BLOCK=512)
        return y
        """,
        _join(
            _FLAT,
            "g = tl.load(g_ptr + at, mask=at < n).to(tl.float32)\ny = x / (1.0 + tl.exp(-x)) * g\n",
            "tl.store(y_ptr + at, y, mask=at < n)",
        ),
        (
            ("swapped operands", "(x, g, y, n, BLOCK=512)", "(g, x, y, n, BLOCK=512)"),
            ("missing term", "x / (1.0 + tl.exp(-x)) * g", "1.0 / (1.0 + tl.exp(-x)) * g"),
            ("wrong formula", "tl.exp(-x)", "tl.exp2(-x)"),
            ("wrong border", "g_ptr + at, mask=at < n", "g_ptr + tl.maximum(at - 1, 0), mask=at < n"),
            _FLAT_TAIL,
        ),
        "x_ptr, g_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "elu",
        "triton",
        "x",
        "F.elu(x, 0.5)",
        "torch.rand(11, 333).to(DTYPE) * 2 - 1",
        _FLAT_FORWARD,
        _join(_FLAT, "y = tl.where(x > 0, x, 0.5 * (tl.exp(x) - 1.0))\ntl.store(y_ptr + at, y, mask=at < n)"),
        (
            ("missing scale", "0.5 * (tl.exp(x) - 1.0)", "tl.exp(x) - 1.0"),
            ("missing term", "0.5 * (tl.exp(x) - 1.0)", "0.5 * x"),
            ("wrong border", "x > 0", "x > -0.5"),
        ),
        "x_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "matmul",
        "triton",
        "a, b",
        "a @ b",
        "torch.randn(50, 70).to(DTYPE), torch.randn(70, 50).to(DTYPE)",
        """
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype)
        kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, BM=32, BN=32, BK=32)
        return c
        """,
        """
        row = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
        column = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for start in range(0, k, BK):
            left = start + tl.arange(0, BK)[None, :]
            right = start + tl.arange(0, BK)[:, None]
            a = tl.load(a_ptr + row * k + left, mask=(row < m) & (left < k), other=0.0).to(tl.float32)
            b = tl.load(b_ptr + right * n + column, mask=(right < k) & (column < n), other=0.0).to(tl.float32)
            total += tl.dot(a, b, input_precision="ieee")
        tl.store(c_ptr + row * n + column, total, mask=(row < m) & (column < n))
        """,
        (
            ("dropped block", "range(0, k, BK)", "range(0, k // BK * BK, BK)"),
            ("dropped block", "range(0, k, BK)", "range(BK, k, BK)"),
            ("dropped tail", "(right < k)", "(right < k - 1)"),
            ("wrong formula", "total += tl.dot", "total = tl.dot"),
            ("wrong axis", "b_ptr + right * n + column", "b_ptr + column * n + right"),
            ("dropped block", "(triton.cdiv(m, 32), triton.cdiv(n, 32))", "(triton.cdiv(m, 32), n // 32)"),
        ),
        "a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr",
    ),
    RightKernel(
        "linear_relu",
        "triton",
        "x",
        "torch.relu(F.linear(x, self.weight, self.bias))",
        "torch.randn(24, 48).to(DTYPE)",
        """
        y = torch.empty(x.shape[0], 40, dtype=x.dtype)
        kernel[(x.shape[0],)](x, self.weight, self.bias, y, 48, 40, BK=64, BN=64)
        return y
        """,
        """
        row = tl.program_id(0)
        at = tl.arange(0, BK)
        out = tl.arange(0, BN)
        x = tl.load(x_ptr + row * k + at, mask=at < k, other=0.0).to(tl.float32)
        inside = (out[:, None] < n) & (at[None, :] < k)
        w = tl.load(w_ptr + out[:, None] * k + at[None, :], mask=inside, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + out, mask=out < n, other=0.0).to(tl.float32)
        total = tl.sum(w * x[None, :], 1)
        tl.store(y_ptr + row * n + out, tl.maximum(total + b, 0.0), mask=out < n)
        """,
        (
            ("missing term", "tl.maximum(total + b, 0.0)", "tl.maximum(total, 0.0)"),
            ("swapped operands", "tl.maximum(total + b, 0.0)", "tl.maximum(total, 0.0) + b"),
            ("dropped tail", "mask=at < k,", "mask=at < k // 32 * 32,"),
            ("mask off by one", "b_ptr + out, mask=out < n", "b_ptr + out, mask=out < n - 1"),
        ),
        "x_ptr, w_ptr, b_ptr, y_ptr, k, n, BK: tl.constexpr, BN: tl.constexpr",
        "self.weight, self.bias = nn.Parameter(torch.randn(40, 48, "
        "dtype=DTYPE)), nn.Parameter(torch.zeros(40, dtype=DTYPE))",
    ),
    RightKernel(
        "mse",
        "triton",
        "x, t",
        "F.mse_loss(x, t)",
        "torch.rand(64, 1024).to(DTYPE), torch.rand(64, 1024).to(DTYPE)",
        """
        n = x.numel()
        total = torch.zeros((), dtype=torch.float32)
        kernel[(1,)](x, t, total, n, n, BLOCK=8192)
        return total.to(x.dtype)
        """,
        """
        total = 0.0
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            off = tl.load(x_ptr + at).to(tl.float32) - tl.load(t_ptr + at).to(tl.float32)
            total += tl.sum(off * off, 0)
        tl.atomic_add(total_ptr, total / count)
        """,
        (
            ("partial read", "(x, t, total, n, n, BLOCK=8192)", "(x, t, total, n // 2, n // 2, BLOCK=8192)"),
            ("partial read", "(x, t, total, n, n, BLOCK=8192)", "(x, t, total, n // 4, n // 4, BLOCK=8192)"),
            ("dropped block", "range(0, n, BLOCK)", "range(BLOCK, n, BLOCK)"),
            ("wrong formula", "off * off", "tl.abs(off)"),
            ("missing scale", "total / count", "total / (count // 2)"),
            (
                "stale accumulator",
                "total = torch.zeros((), dtype=torch.float32)",
                "total = self.total = getattr(self, 'total', torch.zeros((), dtype=torch.float32))",
            ),
        ),
        "x_ptr, t_ptr, total_ptr, n, count, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "mean_product",
        "triton",
        "x, w",
        "(x.float() * w.float()).mean().to(DTYPE)",
        "torch.rand(32, 2048).to(DTYPE), torch.rand(32, 2048).to(DTYPE)",
        """
        y = torch.empty((), dtype=x.dtype)
        n = x.numel()
        kernel[(1,)](x, w, y, n, n, BLOCK=8192)
        return y
        """,
        """
        total = 0.0
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.sum(tl.load(x_ptr + at).to(tl.float32) * tl.load(w_ptr + at).to(tl.float32), 0)
        tl.store(y_ptr, total / count)
        """,
        (
            ("partial read", "(x, w, y, n, n, BLOCK=8192)", "(x, w, y, n // 2, n // 2, BLOCK=8192)"),
            ("partial read", "(x, w, y, n, n, BLOCK=8192)", "(x, w, y, n // 4, n // 4, BLOCK=8192)"),
            ("swapped operands", "tl.load(w_ptr + at)", "tl.load(x_ptr + at)"),
            ("dropped block", "range(0, n, BLOCK)", "range(0, n - BLOCK, BLOCK)"),
            ("wrong border", "tl.load(w_ptr + at)", "tl.load(w_ptr + (at + 1) % n)"),
        ),
        "x_ptr, w_ptr, y_ptr, n, count, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "row_mean",
        "triton",
        "x",
        "torch.mean(x, dim=1)",
        "torch.rand(8, 16384).to(DTYPE)",
        """
        y = torch.empty(x.shape[0], dtype=x.dtype)
        n = x.shape[1]
        kernel[(x.shape[0],)](x, y, n, n, BLOCK=2048)
        return y
        """,
        """
        row = tl.program_id(0)
        total = 0.0
        for start in range(0, n, BLOCK):
            total += tl.sum(tl.load(x_ptr + row * stride + start + tl.arange(0, BLOCK)).to(tl.float32), 0)
        tl.store(y_ptr + row, total / n)
        """,
        (
            ("partial read", "(x, y, n, n, BLOCK=2048)", "(x, y, n // 2, n, BLOCK=2048)"),
            ("partial read", "(x, y, n, n, BLOCK=2048)", "(x, y, n // 4, n, BLOCK=2048)"),
            ("dropped block", "range(0, n, BLOCK)", "range(0, n - BLOCK, BLOCK)"),
            ("wrong axis", "row * stride + start", "(row + 1) % 8 * stride + start"),
        ),
        "x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "weighted_mean",
        "triton",
        "x, w",
        "((x.float() * w.float()).sum(1) / w.float().sum(1)).to(DTYPE)",
        "torch.rand(6, 16384).to(DTYPE), torch.rand(6, 16384).to(DTYPE)",
        """
        y = torch.empty(x.shape[0], dtype=x.dtype)
        n = x.shape[1]
        kernel[(x.shape[0],)](x, w, y, n, n, BLOCK=2048)
        return y
        """,
        """
        row = tl.program_id(0)
        total = 0.0
        weight = 0.0
        for start in range(0, n, BLOCK):
            at = row * stride + start + tl.arange(0, BLOCK)
            w = tl.load(w_ptr + at).to(tl.float32)
            total += tl.sum(tl.load(x_ptr + at).to(tl.float32) * w, 0)
            weight += tl.sum(w, 0)
        tl.store(y_ptr + row, total / weight)
        """,
        (
            ("partial read", "(x, w, y, n, n, BLOCK=2048)", "(x, w, y, n // 2, n, BLOCK=2048)"),
            ("partial read", "(x, w, y, n, n, BLOCK=2048)", "(x, w, y, n // 4, n, BLOCK=2048)"),
            ("missing scale", "total / weight", "total / (0.5 * n)"),
            ("swapped operands", "(x, w, y, n, n,", "(w, x, y, n, n,"),
            ("missing term", ".to(tl.float32) * w, 0)", ".to(tl.float32), 0) * 0.5"),
        ),
        "x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "variance",
        "triton",
        "x",
        "torch.var(x.float(), dim=1).to(DTYPE)",
        "torch.randn(16, 4096).to(DTYPE)",
        """
        y = torch.empty(x.shape[0], dtype=x.dtype)
        n = x.shape[1]
        kernel[(x.shape[0],)](x, y, n, n, BLOCK=4096)
        return y
        """,
        """
        row = tl.program_id(0)
        at = tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0).to(tl.float32)
        off = tl.where(at < n, x - tl.sum(x, 0) / n, 0.0)
        tl.store(y_ptr + row, tl.sum(off * off, 0) / (n - 1))
        """,
        (
            ("partial read", "(x, y, n, n, BLOCK=4096)", "(x, y, n // 2, n, BLOCK=4096)"),
            ("partial read", "(x, y, n, n, BLOCK=4096)", "(x, y, n // 4, n, BLOCK=4096)"),
            ("wrong variance", "/ (n - 1)", "/ n"),
            ("wrong formula", "tl.sum(off * off, 0) / (n - 1)", "tl.sum(tl.abs(off), 0) / (n - 1)"),
            ("missing term", "x - tl.sum(x, 0) / n", "x"),
        ),
        "x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "topk",
        "triton",
        "x",
        "torch.topk(x, 5, dim=1)",
        "torch.randn(10, 100).to(DTYPE)",
        """
        values = torch.empty(x.shape[0], 5, dtype=x.dtype)
        indices = torch.empty(x.shape[0], 5, dtype=torch.int64)
        kernel[(x.shape[0],)](x, values, indices, x.shape[1], K=5, BLOCK=128)
        return values, indices
        """,
        _join(
            _ROW.format(other="-float('inf')"),
            """
        for k in tl.static_range(K):
            best = tl.max(x, axis=0)
            place = tl.min(tl.where(x == best, at, BLOCK), axis=0)
            tl.store(v_ptr + row * K + k, best)
            tl.store(i_ptr + row * K + k, place.to(tl.int64))
            x = tl.where(at == place, -float("inf"), x)
        """,
        ),
        (
            ("duplicated index", "tl.where(at == place,", "tl.where((at == place) & (k != 3),"),
            ("duplicated index", "tl.where(at == place,", "tl.where((at == place) & (k < 2),"),
            ("duplicated index", "tl.where(at == place,", "tl.where(x == best,"),
            ("wrong index", "place.to(tl.int64)", "(place + 1).to(tl.int64)"),
            ("wrong index", "place.to(tl.int64)", "tl.minimum(place, 63).to(tl.int64)"),
            _ROW_TAIL,
        ),
        "x_ptr, v_ptr, i_ptr, n, K: tl.constexpr, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "argmax",
        "triton",
        "x",
        "torch.argmax(x, dim=1)",
        "torch.randn(50, 90).to(DTYPE)",
        """
        y = torch.empty(x.shape[0], dtype=torch.int64)
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=128)
        return y
        """,
        _join(
            _ROW.format(other="-float('inf')"),
            "place = tl.min(tl.where(x == tl.max(x, 0), at, BLOCK), axis=0)\ntl.store(y_ptr + row, place.to(tl.int64))",
        ),
        (
            (
                "wrong tie",
                "tl.min(tl.where(x == tl.max(x, 0), at, BLOCK), axis=0)",
                "tl.max(tl.where(x == tl.max(x, 0), at, -1), axis=0)",
            ),
            (
                "wrong formula",
                "tl.where(x == tl.max(x, 0), at",
                "tl.where(tl.abs(x) == tl.max(tl.abs(x) * (at < n), 0), at",
            ),
            ("mask off by one", "mask=at < n,", "mask=at < n - 1,"),
            ("wrong padding", "other=-float('inf')", "other=0.0"),
            _ROW_TAIL,
        ),
        _ROWS,
    ),
    RightKernel(
        "cumsum",
        "triton",
        "x",
        "torch.cumsum(x.float(), dim=1).to(DTYPE)",
        "torch.randn(9, 200).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y
        """,
        """
        row = tl.program_id(0)
        carry = 0.0
        for start in range(0, n, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0).to(tl.float32)
            tl.store(y_ptr + row * n + at, tl.cumsum(x, 0) + carry, mask=at < n)
            carry += tl.sum(x, 0)
        """,
        (
            ("missing term", "tl.cumsum(x, 0) + carry", "tl.cumsum(x, 0)"),
            ("stale accumulator", "carry += tl.sum(x, 0)", "carry = tl.sum(x, 0)"),
            ("mask off by one", "tl.cumsum(x, 0) + carry", "tl.cumsum(x, 0) - x + carry"),
            ("dropped tail", "x_ptr + row * n + at, mask=at < n", "x_ptr + row * n + at, mask=at < n - 3"),
            ("wrong axis", "tl.cumsum(x, 0) + carry", "tl.cumsum(x, 0, reverse=True) + carry"),
        ),
        "x_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "max_pool",
        "triton",
        "x",
        "F.max_pool1d(x, 3, stride=2, padding=1)",
        "torch.randn(6, 8, 75).to(DTYPE)",
        """
        n = x.shape[-1]
        y = torch.empty(*x.shape[:2], 38, dtype=x.dtype)
        kernel[(x.shape[0] * x.shape[1],)](x, y, n, 38, BLOCK=64)
        return y
        """,
        """
        row = tl.program_id(0)
        out = tl.arange(0, BLOCK)
        best = tl.full((BLOCK,), -float("inf"), tl.float32)
        for tap in range(3):
            at = out * 2 + tap - 1
            inside = (at >= 0) & (at < n) & (out < m)
            best = tl.maximum(best, tl.load(x_ptr + row * n + at, mask=inside, other=-float("inf")).to(tl.float32))
        tl.store(y_ptr + row * m + out, best, mask=out < m)
        """,
        (
            ("wrong padding", 'mask=inside, other=-float("inf")', "mask=inside, other=0.0"),
            ("wrong border", "(at >= 0)", "(at > 0)"),
            ("wrong border", "(at < n)", "(at < n - 1)"),
            ("wrong border", "out * 2 + tap - 1", "out * 2 + tap"),
            ("dropped block", "for tap in range(3)", "for tap in range(2)"),
            ("wrong padding", 'tl.full((BLOCK,), -float("inf"), tl.float32)', "tl.full((BLOCK,), 0.0, tl.float32)"),
        ),
        "x_ptr, y_ptr, n, m, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "causal_conv",
        "triton",
        "x, w",
        "F.conv1d(F.pad(x, (3, 0)), w, groups=6)",
        "torch.randn(4, 6, 90).to(DTYPE), torch.randn(6, 1, 4).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(x.shape[0] * x.shape[1],)](x, w, y, x.shape[1], x.shape[2], BLOCK=128)
        return y
        """,
        """
        row = tl.program_id(0)
        out = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for tap in range(4):
            at = out + tap - 3
            x = tl.load(x_ptr + row * n + at, mask=(at >= 0) & (at < n), other=0.0).to(tl.float32)
            total += x * tl.load(w_ptr + (row % channels) * 4 + tap).to(tl.float32)
        tl.store(y_ptr + row * n + out, total, mask=out < n)
        """,
        (
            ("swapped operands", "(row % channels) * 4 + tap)", "(row % channels) * 4 + 3 - tap)"),
            ("wrong border", "out + tap - 3", "out + tap - 2"),
            ("dropped block", "for tap in range(4)", "for tap in range(1, 4)"),
            ("wrong border", "mask=(at >= 0) & (at < n)", "mask=(at >= 1) & (at < n)"),
            ("wrong axis", "(row % channels) * 4", "(row // 4) * 4"),
        ),
        "x_ptr, w_ptr, y_ptr, channels, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "embedding",
        "triton",
        "ids, table",
        "table[ids]",
        "torch.randint(0, 50, (40,)), torch.randn(50, 24).to(DTYPE)",
        """
        y = torch.empty(ids.shape[0], table.shape[1], dtype=table.dtype)
        kernel[(ids.shape[0],)](ids, table, y, table.shape[1], BLOCK=32)
        return y
        """,
        """
        row = tl.program_id(0)
        at = tl.arange(0, BLOCK)
        id = tl.load(ids_ptr + row)
        x = tl.load(table_ptr + id * n + at, mask=at < n, other=0.0)
        tl.store(y_ptr + row * n + at, x, mask=at < n)
        """,
        (
            ("wrong index", "id = tl.load(ids_ptr + row)", "id = tl.maximum(tl.load(ids_ptr + row), 1)"),
            ("wrong index", "id = tl.load(ids_ptr + row)", "id = tl.minimum(tl.load(ids_ptr + row), 48)"),
            ("wrong index", "id = tl.load(ids_ptr + row)", "id = tl.load(ids_ptr + row) % 32"),
            ("mask off by one", "id * n + at, mask=at < n,", "id * n + at, mask=at < n - 1,"),
            ("wrong formula", "mask=at < n, other=0.0)", "mask=at < n, other=0.0) * (id > 0)"),
        ),
        "ids_ptr, table_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "cross_entropy",
        "triton",
        "x, labels",
        "F.cross_entropy(x, labels)",
        "torch.randn(48, 70).to(DTYPE), torch.randint(0, 70, (48,))",
        """
        loss = torch.zeros((), dtype=torch.float32)
        kernel[(x.shape[0],)](x, labels, loss, x.shape[1], x.shape[0], BLOCK=128)
        return loss.to(x.dtype)
        """,
        _join(
            _ROW.format(other="-float('inf')"),
            """
        label = tl.load(labels_ptr + row)
        top = tl.max(x, 0)
        lse = tl.log(tl.sum(tl.exp(x - top), 0)) + top
        chosen = tl.sum(tl.where(at == label, x, 0.0), 0)
        tl.atomic_add(loss_ptr, (lse - chosen) / rows)
        """,
        ),
        (
            ("missing maximum", "top = tl.max(x, 0)", "top = 0.0"),
            ("missing term", "+ top", ""),
            ("wrong index", "tl.where(at == label, x, 0.0)", "tl.where(at == label - 1, x, 0.0)"),
            ("wrong index", "tl.where(at == label, x, 0.0)", "tl.where((at == label) & (at > 0), x, 0.0)"),
            (
                "partial read",
                "kernel[(x.shape[0],)](x, labels, loss, x.shape[1], x.shape[0],",
                "kernel[(x.shape[0] // 2,)](x, labels, loss, x.shape[1], x.shape[0] // 2,",
            ),
            ("missing scale", "(lse - chosen) / rows", "(lse - chosen) / n"),
            _ROW_TAIL,
        ),
        "x_ptr, labels_ptr, loss_ptr, n, rows, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "bce_with_logits",
        "triton",
        "x, t",
        "F.binary_cross_entropy_with_logits(x.float(), t.float()).to(DTYPE)",
        "torch.randn(32, 256).to(DTYPE), torch.rand(32, 256).to(DTYPE)",
        """
        loss = torch.zeros((), dtype=torch.float32)
        n = x.numel()
        kernel[(n // 1024,)](x, t, loss, n, BLOCK=1024)
        return loss.to(x.dtype)
        """,
        _join(
            _FLAT,
            """
        t = tl.load(t_ptr + at, mask=at < n).to(tl.float32)
        each = tl.maximum(x, 0.0) - x * t + tl.log(1.0 + tl.exp(-tl.abs(x)))
        tl.atomic_add(loss_ptr, tl.sum(each, 0) / n)
        """,
        ),
        (
            ("partial read", "kernel[(n // 1024,)](x, t, loss, n,", "kernel[(n // 2048,)](x, t, loss, n // 2,"),
            ("partial read", "kernel[(n // 1024,)](x, t, loss, n,", "kernel[(n // 4096,)](x, t, loss, n // 4,"),
            ("dropped block", "kernel[(n // 1024,)]", "kernel[(n // 1024 - 1,)]"),
            ("swapped operands", "(x, t, loss, n, BLOCK=1024)", "(t, x, loss, n, BLOCK=1024)"),
            (
                "wrong formula",
                "tl.maximum(x, 0.0) - x * t + tl.log(1.0 + tl.exp(-tl.abs(x)))",
                "tl.log(1.0 + tl.exp(x)) - x * t",
            ),
            (
                "stale accumulator",
                "loss = torch.zeros((), dtype=torch.float32)",
                "loss = self.loss = getattr(self, 'loss', torch.zeros((), dtype=torch.float32))",
            ),
        ),
        "x_ptr, t_ptr, loss_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "rotary",
        "triton",
        "x, angle",
        "torch.cat([x[:, :16] * angle.cos() - x[:, 16:] * angle.sin(), "
        "x[:, 16:] * angle.cos() + x[:, :16] * angle.sin()], 1)",
        "torch.randn(12, 32).to(DTYPE), torch.rand(12, 16).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, angle, y)
        return y
        """,
        """
        row = tl.program_id(0)
        at = tl.arange(0, 16)
        low = tl.load(x_ptr + row * 32 + at).to(tl.float32)
        high = tl.load(x_ptr + row * 32 + 16 + at).to(tl.float32)
        angle = tl.load(a_ptr + row * 16 + at).to(tl.float32)
        tl.store(y_ptr + row * 32 + at, low * tl.cos(angle) - high * tl.sin(angle))
        tl.store(y_ptr + row * 32 + 16 + at, high * tl.cos(angle) + low * tl.sin(angle))
        """,
        (
            ("wrong formula", "low * tl.cos(angle) - high", "low * tl.cos(angle) + high"),
            (
                "swapped operands",
                "high * tl.cos(angle) + low * tl.sin(angle)",
                "low * tl.cos(angle) + high * tl.sin(angle)",
            ),
            (
                "wrong border",
                "low = tl.load(x_ptr + row * 32 + at)",
                "low = tl.load(x_ptr + row * 32 + tl.minimum(at, 14))",
            ),
            ("wrong axis", "a_ptr + row * 16 + at", "a_ptr + at"),
        ),
        "x_ptr, a_ptr, y_ptr",
    ),
    RightKernel(
        "attention",
        "triton",
        "q, k, v",
        "F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]",
        "torch.randn(24, 16).to(DTYPE), torch.randn(24, 16).to(DTYPE), torch.randn(24, 16).to(DTYPE)",
        """
        y = torch.empty_like(q)
        kernel[(q.shape[0],)](q, k, v, y, q.shape[0], BLOCK=16)
        return y
        """,
        """
        row = tl.program_id(0)
        d = tl.arange(0, 16)
        q = tl.load(q_ptr + row * 16 + d).to(tl.float32) * 0.25
        top = -float("inf")
        total = 0.0
        out = tl.zeros((16,), tl.float32)
        for start in range(0, row + 1, BLOCK):
            at = start + tl.arange(0, BLOCK)
            seen = at <= row
            k = tl.load(k_ptr + at[:, None] * 16 + d[None, :], mask=seen[:, None], other=0.0).to(tl.float32)
            v = tl.load(v_ptr + at[:, None] * 16 + d[None, :], mask=seen[:, None], other=0.0).to(tl.float32)
            score = tl.where(seen, tl.sum(k * q[None, :], 1), -float("inf"))
            higher = tl.maximum(top, tl.max(score, 0))
            weight = tl.exp(score - higher)
            shrink = tl.exp(top - higher)
            total = total * shrink + tl.sum(weight, 0)
            out = out * shrink + tl.sum(weight[:, None] * v, 0)
            top = higher
        tl.store(y_ptr + row * 16 + d, out / total)
        """,
        (
            ("missing scale", ".to(tl.float32) * 0.25", ".to(tl.float32)"),
            ("mask off by one", "seen = at <= row", "seen = at < tl.maximum(row, 1)"),
            ("mask off by one", "seen = at <= row", "seen = (at <= row + 1) & (at < n)"),
            ("stale accumulator", "out = out * shrink +", "out = out +"),
            ("stale accumulator", "total = total * shrink +", "total = total +"),
            ("dropped block", "range(0, row + 1, BLOCK)", "range(0, tl.minimum(row + 1, 16), BLOCK)"),
            ("missing maximum", "higher = tl.maximum(top, tl.max(score, 0))", "higher = tl.max(score, 0) * 0"),
        ),
        "q_ptr, k_ptr, v_ptr, y_ptr, n, BLOCK: tl.constexpr",
    ),
    RightKernel(
        "group_norm",
        "triton",
        "x",
        "F.group_norm(x, 4, eps=1e-5)",
        "torch.randn(6, 8, 9).to(DTYPE)",
        """
        y = torch.empty_like(x)
        kernel[(24,)](x, y, 18, BLOCK=32)
        return y
        """,
        _join(
            _ROW.format(other="0.0"),
            """
        mean = tl.sum(x, 0) / n
        off = tl.where(at < n, x - mean, 0.0)
        variance = tl.sum(off * off, 0) / n
        tl.store(y_ptr + row * n + at, off * tl.rsqrt(variance + 1e-5), mask=at < n)
        """,
        ),
        (
            ("missing eps", "variance + 1e-5", "variance"),
            ("wrong axis", "kernel[(24,)](x, y, 18, BLOCK=32)", "kernel[(48,)](x, y, 9, BLOCK=16)"),
            ("wrong variance", "tl.sum(off * off, 0) / n", "tl.sum(off * off, 0) / (n - 1)"),
            ("missing term", "off = tl.where(at < n, x - mean, 0.0)", "off = x"),
            ("dropped block", "kernel[(24,)]", "y.zero_(); kernel[(23,)]"),
        ),
        _ROWS,
    ),
)


def _cpp(
    name: str, names: str, result: str, inputs: str, body: str, edits: tuple[Edit, ...], **fields: str
) -> RightKernel:
    """A C++ kernel that is called with all arguments of `forward`, unless `forward` is given."""
    fields = {"forward": f"return extension.run({names})", **fields}
    return RightKernel(name, "cpp", names, result, inputs, body=body, edits=edits, **fields)


_CPP_KERNELS = (
    _cpp(
        "cpp_row_mean",
        "x",
        "x.float().mean(1).to(DTYPE)",
        "torch.rand(6, 20000).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty({m}, x.options());
            const T* in = x.data_ptr<T>();
            T* out = y.data_ptr<T>();
            for (int64_t r = 0; r < m; ++r) {
                double total = 0;
                for (int64_t c = 0; c < n; ++c) total += double(in[r * n + c]);
                out[r] = T(float(total / n));
            }
            return y;
        }
        """,
        (
            ("partial read", "double total = 0;", "double total = 0; const int64_t n = x.size(1) / 2;"),
            (
                "partial read",
                "c < n; ++c) total += double(in[r * n + c]);",
                "c < n; c += 4) total += 4 * double(in[r * n + c]);",
            ),
            ("narrow sum", "double total = 0;", "at::Half total = 0;"),
            ("dropped tail", "c < n; ++c)", "c < n / 4096 * 4096; ++c)"),
            ("stale accumulator", "double total = 0;", "static double total = 0; if (r > 0) total = 0;"),
        ),
    ),
    _cpp(
        "cpp_mse",
        "x, t",
        "(x.float() - t.float()).pow(2).mean().to(DTYPE)",
        "torch.rand(40000).to(DTYPE), torch.rand(40000).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x, torch::Tensor t) {
            const int64_t n = x.numel(), step = 1;
            auto y = torch::empty({}, x.options());
            const T* a = x.data_ptr<T>();
            const T* b = t.data_ptr<T>();
            double total = 0;
            for (int64_t i = 0; i < n; i += step) {
                const double off = double(a[i]) - double(b[i]);
                total += off * off;
            }
            y.data_ptr<T>()[0] = T(float(total / n));
            return y;
        }
        """,
        (
            ("partial read", "n = x.numel(),", "n = x.numel() / 2,"),
            ("partial read", "n = x.numel(),", "n = x.numel() / 4,"),
            ("partial read", "total += off * off;", "total += i % 4 ? 0.0 : 4 * off * off;"),
            ("stale accumulator", "double total = 0;", "static double total = 0;"),
            (
                "wrong formula",
                "total += off * off;",
                "total += double(a[i]) * double(a[i]) - double(b[i]) * double(b[i]);",
            ),
        ),
    ),
    _cpp(
        "cpp_softmax",
        "x",
        "torch.softmax(x, 1)",
        "torch.randn(30, 130).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty_like(x);
            for (int64_t r = 0; r < m; ++r) {
                const T* in = x.data_ptr<T>() + r * n;
                T* out = y.data_ptr<T>() + r * n;
                float top = -std::numeric_limits<float>::infinity();
                for (int64_t c = 0; c < n; ++c) top = std::max(top, float(in[c]));
                float total = 0;
                for (int64_t c = 0; c < n; ++c) total += std::exp(float(in[c]) - top);
                for (int64_t c = 0; c < n; ++c) out[c] = T(std::exp(float(in[c]) - top) / total);
            }
            return y;
        }
        """,
        (
            (
                "missing maximum",
                "float top = -std::numeric_limits<float>::infinity();\n        for "
                "(int64_t c = 0; c < n; ++c) top = std::max(top, float(in[c]));",
                "const float top = 0;",
            ),
            (
                "missing maximum",
                "for (int64_t c = 0; c < n; ++c) top = std::max(top",
                "for (int64_t c = 0; c < 1; ++c) top = std::max(top",
            ),
            (
                "dropped tail",
                "for (int64_t c = 0; c < n; ++c) total +=",
                "for (int64_t c = 0; c < n / 32 * 32; ++c) total +=",
            ),
            ("stale accumulator", "float total = 0;", "static float total = 0;"),
        ),
    ),
    _cpp(
        "cpp_layer_norm",
        "x",
        "F.layer_norm(x, (x.shape[1],), eps=1e-5)",
        "torch.randn(40, 16).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty_like(x);
            for (int64_t r = 0; r < m; ++r) {
                const T* in = x.data_ptr<T>() + r * n;
                T* out = y.data_ptr<T>() + r * n;
                double mean = 0, variance = 0;
                for (int64_t c = 0; c < n; ++c) mean += double(in[c]) / n;
                for (int64_t c = 0; c < n; ++c) variance += (double(in[c]) - mean) * (double(in[c]) - mean) / n;
                for (int64_t c = 0; c < n; ++c) out[c] = T(float((double(in[c]) - mean) / std::sqrt(variance + 1e-5)));
            }
            return y;
        }
        """,
        (
            ("missing eps", "variance + 1e-5", "variance"),
            ("missing eps", "std::sqrt(variance + 1e-5)", "(std::sqrt(variance) + 1e-5)"),
            ("wrong variance", "(double(in[c]) - mean) / n;", "(double(in[c]) - mean) / (n - 1);"),
            (
                "wrong formula",
                "variance += (double(in[c]) - mean) * (double(in[c]) - mean) / n;",
                "variance += std::abs(double(in[c]) - mean) / n;",
            ),
            ("mask off by one", "++c) mean +=", "++c) if (c > 0) mean +="),
        ),
    ),
    _cpp(
        "cpp_matmul",
        "a, b",
        "a @ b",
        "torch.randn(33, 70).to(DTYPE), torch.randn(70, 33).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor a, torch::Tensor b) {
            const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
            auto y = torch::empty({m, n}, a.options());
            const T* left = a.data_ptr<T>();
            const T* right = b.data_ptr<T>();
            for (int64_t i = 0; i < m; ++i)
                for (int64_t j = 0; j < n; ++j) {
                    float total = 0;
                    for (int64_t p = 0; p < k; ++p) total += float(left[i * k + p]) * float(right[p * n + j]);
                    y.data_ptr<T>()[i * n + j] = T(total);
                }
            return y;
        }
        """,
        (
            ("dropped block", "p < k; ++p)", "p < k / 32 * 32; ++p)"),
            ("dropped tail", "p < k; ++p)", "p < k - 1; ++p)"),
            (
                "swapped operands",
                "float(left[i * k + p]) * float(right[p * n + j])",
                "float(left[j * k + p]) * float(right[p * n + i])",
            ),
            ("wrong border", "float(right[p * n + j])", "float(right[p * n + std::min<int64_t>(j, 31)])"),
            ("narrow sum", "float total = 0;", "c10::Float8_e5m2 total = 0.0f;"),
            ("stale accumulator", "float total = 0;", "static float total = 0; if (j > 0) total = 0;"),
        ),
    ),
    _cpp(
        "cpp_conv2d",
        "x, w",
        "F.conv2d(x, w, padding=1)",
        "torch.randn(2, 4, 13, 11).to(DTYPE), torch.randn(4, 4, 3, 3).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x, torch::Tensor w) {
            const int64_t channels = 4, height = x.size(2), width = x.size(3);
            auto y = torch::empty_like(x);
            const T* in = x.data_ptr<T>();
            const T* taps = w.data_ptr<T>();
            for (int64_t image = 0; image < x.size(0); ++image)
            for (int64_t o = 0; o < channels; ++o)
            for (int64_t i = 0; i < height; ++i)
            for (int64_t j = 0; j < width; ++j) {
                float total = 0;
                for (int64_t c = 0; c < channels; ++c)
                for (int64_t p = 0; p < 3; ++p)
                for (int64_t q = 0; q < 3; ++q) {
                    int64_t row = i + p - 1, column = j + q - 1;
                    if (row < 0 || row >= height || column < 0 || column >= width) continue;
                    total += float(in[((image * channels + c) * height + row) * width + column])
                           * float(taps[((o * channels + c) * 3 + p) * 3 + q]);
                }
                y.data_ptr<T>()[((image * channels + o) * height + i) * width + j] = T(total);
            }
            return y;
        }
        """,
        (
            ("wrong border", "column >= width) continue;", "column >= width - 1) continue;"),
            ("wrong border", "if (row < 0 ||", "row = std::max<int64_t>(row, 0); if (row < 0 ||"),
            (
                "wrong border",
                "column < 0 || column >= width) continue;",
                "false) continue; column = (column + width) % width;",
            ),
            ("swapped operands", "* 3 + p) * 3 + q]", "* 3 + q) * 3 + p]"),
            ("wrong formula", "* 3 + p) * 3 + q]", "* 3 + 2 - p) * 3 + 2 - q]"),
            ("wrong axis", "(o * channels + c) * 3", "(c * channels + o) * 3"),
            ("dropped block", "c < channels; ++c)", "c < channels - 1; ++c)"),
        ),
    ),
    _cpp(
        "cpp_avg_pool",
        "x",
        "F.avg_pool2d(x, 3, 2, 1)",
        "torch.randn(3, 4, 15, 17).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t planes = x.size(0) * x.size(1), height = x.size(2), width = x.size(3);
            auto y = torch::empty({x.size(0), x.size(1), 8, 9}, x.options());
            const T* in = x.data_ptr<T>();
            for (int64_t plane = 0; plane < planes; ++plane)
            for (int64_t i = 0; i < 8; ++i)
            for (int64_t j = 0; j < 9; ++j) {
                float total = 0;
                int count = 0;
                for (int64_t row = 2 * i - 1; row < 2 * i + 2; ++row)
                for (int64_t column = 2 * j - 1; column < 2 * j + 2; ++column) {
                    if (row < 0 || row >= height || column < 0 || column >= width) continue;
                    total += float(in[(plane * height + row) * width + column]);
                    ++count;
                }
                y.data_ptr<T>()[(plane * 8 + i) * 9 + j] = T(total / 9);
            }
            return y;
        }
        """,
        (
            ("wrong border", "T(total / 9)", "T(total / count)"),
            ("wrong border", "row < 0 || row >= height ||", "row < 0 || row >= height - 1 ||"),
            ("mask off by one", "column < 2 * j + 2; ++column", "column < 2 * j + 1; ++column"),
            ("wrong formula", "row = 2 * i - 1; row < 2 * i + 2", "row = 2 * i; row < 2 * i + 3"),
        ),
    ),
    _cpp(
        "cpp_quantise",
        "x",
        "torch.round(x.float() / (x.float().abs().amax(1, "
        "keepdim=True).clamp(min=1e-6) / 127)).clamp(-127, 127).to(torch.int8)",
        "torch.randn(30, 64).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty({m, n}, x.options().dtype(torch::kInt8));
            for (int64_t r = 0; r < m; ++r) {
                const T* in = x.data_ptr<T>() + r * n;
                float top = 1e-6f;
                for (int64_t c = 0; c < n; ++c) top = std::max(top, std::abs(float(in[c])));
                const float scale = top / 127.0f;
                for (int64_t c = 0; c < n; ++c) {
                    const float level = std::nearbyint(float(in[c]) / scale);
                    y.data_ptr<int8_t>()[r * n + c] = int8_t(std::min(std::max(level, -127.0f), 127.0f));
                }
            }
            return y;
        }
        """,
        (
            ("wrong rounding", "std::nearbyint(float(in[c]) / scale)", "std::floor(float(in[c]) / scale)"),
            ("wrong rounding", "std::nearbyint(float(in[c]) / scale)", "std::trunc(float(in[c]) / scale)"),
            ("wrong rounding", "std::nearbyint(float(in[c]) / scale)", "std::ceil(float(in[c]) / scale - 0.4f)"),
            ("wrong formula", "top / 127.0f", "top / 128.0f"),
            ("missing eps", "float top = 1e-6f;", "float top = 0.0f;"),
            ("dropped tail", "++c) top = std::max", "++c) if (c < n / 48 * 48) top = std::max"),
        ),
    ),
    _cpp(
        "cpp_index_add",
        "x, ids",
        "torch.zeros(12, x.shape[1], dtype=torch.float32).index_add_(0, ids, x.float()).to(DTYPE)",
        "torch.randn(60, 10).to(DTYPE), torch.randint(0, 12, (60,))",
        """
        torch::Tensor run(torch::Tensor x, torch::Tensor ids) {
            const int64_t m = x.size(0), n = x.size(1);
            auto sums = torch::zeros({12, n}, x.options().dtype(torch::kFloat32));
            auto y = torch::empty({12, n}, x.options());
            const T* in = x.data_ptr<T>();
            const int64_t* rows = ids.data_ptr<int64_t>();
            float* total = sums.data_ptr<float>();
            for (int64_t r = 0; r < m; ++r)
                for (int64_t c = 0; c < n; ++c) total[rows[r] * n + c] += float(in[r * n + c]);
            for (int64_t i = 0; i < 12 * n; ++i) y.data_ptr<T>()[i] = T(total[i]);
            return y;
        }
        """,
        (
            ("wrong formula", "total[rows[r] * n + c] +=", "total[rows[r] * n + c] ="),
            ("stale accumulator", "auto sums = torch::zeros", "static auto sums = torch::zeros"),
            ("wrong index", "total[rows[r] * n + c]", "total[std::min<int64_t>(rows[r], 10) * n + c]"),
            ("dropped tail", "r < m; ++r", "r < m / 16 * 16; ++r"),
            ("mask off by one", "c < n; ++c", "c < n - 1; ++c"),
        ),
    ),
    _cpp(
        "cpp_cumsum",
        "x",
        "torch.cumsum(x.float(), 1).to(DTYPE)",
        "torch.randn(20, 50).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty_like(x);
            for (int64_t r = 0; r < m; ++r) {
                float total = 0;
                for (int64_t c = 0; c < n; ++c) {
                    total += float(x.data_ptr<T>()[r * n + c]);
                    y.data_ptr<T>()[r * n + c] = T(total);
                }
            }
            return y;
        }
        """,
        (
            ("stale accumulator", "float total = 0;", "static float total = 0;"),
            ("wrong axis", "data_ptr<T>()[r * n + c]);", "data_ptr<T>()[(c * m + r) % (m * n)]);"),
            ("wrong border", "total += float", "if (c > 0) total += float"),
            ("narrow sum", "float total = 0;", "c10::Float8_e4m3fn total = 0.0f;"),
        ),
    ),
    _cpp(
        "cpp_topk",
        "x",
        "torch.topk(x, 4, dim=1)",
        "torch.randn(20, 60).to(DTYPE)",
        """
        std::vector<torch::Tensor> run(torch::Tensor x) {
            const int64_t m = x.size(0), n = x.size(1);
            auto values = torch::empty({m, 4}, x.options());
            auto indices = torch::empty({m, 4}, x.options().dtype(torch::kInt64));
            for (int64_t r = 0; r < m; ++r) {
                const T* in = x.data_ptr<T>() + r * n;
                std::vector<int64_t> order(n);
                for (int64_t c = 0; c < n; ++c) order[c] = c;
                std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
                    return float(in[a]) > float(in[b]);
                });
                for (int64_t k = 0; k < 4; ++k) {
                    values.data_ptr<T>()[r * 4 + k] = in[order[k]];
                    indices.data_ptr<int64_t>()[r * 4 + k] = order[k];
                }
            }
            return {values, indices};
        }
        """,
        (
            ("duplicated index", "= order[k];", "= order[std::min<int64_t>(k, 2)];"),
            ("duplicated index", "= order[k];", "= order[k == 1 ? 0 : k];"),
            ("wrong index", "= order[k];", "= order[k] % 56;"),
            ("wrong formula", "float(in[a]) > float(in[b])", "std::abs(float(in[a])) > std::abs(float(in[b]))"),
            ("dropped tail", "order(n);", "order(n / 32 * 32); const int64_t n = order.size();"),
        ),
    ),
    _cpp(
        "cpp_gelu",
        "x",
        "F.gelu(x)",
        "torch.randn(3000).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            auto y = torch::empty_like(x);
            const int64_t n = x.numel();
            for (int64_t i = 0; i < n; ++i) {
                const float v = float(x.data_ptr<T>()[i]);
                y.data_ptr<T>()[i] = T(0.5f * v * (1.0f + std::erf(v * 0.70710678f)));
            }
            return y;
        }
        """,
        (
            ("tanh for erf", "std::erf(v * 0.70710678f)", "std::tanh(0.79788456f * (v + 0.044715f * v * v * v))"),
            ("tanh for erf", "std::erf(v * 0.70710678f)", "std::tanh(0.79788456f * v)"),
            ("missing term", "1.0f + std::erf", "std::erf"),
            ("dropped tail", "T(0.5f * v", "T((i < n / 64 * 64 ? 0.5f : 0.0f) * v"),
        ),
    ),
    _cpp(
        "cpp_pad",
        "x",
        "F.pad(x, (3, 3), mode='reflect')",
        "torch.randn(12, 4, 21).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t m = x.size(0) * x.size(1), n = x.size(2);
            auto y = torch::empty({x.size(0), x.size(1), n + 6}, x.options());
            for (int64_t r = 0; r < m; ++r)
                for (int64_t c = 0; c < n + 6; ++c) {
                    int64_t from = std::abs(c - 3);
                    if (from >= n) from = 2 * (n - 1) - from;
                    y.data_ptr<T>()[r * (n + 6) + c] = x.data_ptr<T>()[r * n + from];
                }
            return y;
        }
        """,
        (
            ("wrong border", "2 * (n - 1) - from", "2 * n - 1 - from"),
            ("wrong border", "std::abs(c - 3)", "std::max<int64_t>(c - 3, 0)"),
            ("wrong border", "2 * (n - 1) - from", "n - 1"),
        ),
    ),
    _cpp(
        "cpp_bilinear",
        "x",
        "F.interpolate(x, scale_factor=2, mode='bilinear')",
        "torch.randn(2, 3, 9, 8).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x) {
            const int64_t planes = x.size(0) * x.size(1), height = x.size(2), width = x.size(3);
            auto y = torch::empty({x.size(0), x.size(1), 2 * height, 2 * width}, x.options());
            for (int64_t plane = 0; plane < planes; ++plane)
            for (int64_t i = 0; i < 2 * height; ++i)
            for (int64_t j = 0; j < 2 * width; ++j) {
                const float row = std::max(0.0f, (i + 0.5f) / 2 - 0.5f), column = std::max(0.0f, (j + 0.5f) / 2 - 0.5f);
                const int64_t top = int64_t(row), left = int64_t(column);
                const int64_t bottom = std::min(top + 1, height - 1), right = std::min(left + 1, width - 1);
                const float down = row - top, across = column - left;
                const T* in = x.data_ptr<T>() + plane * height * width;
                const T *first = in + top * width, *second = in + bottom * width;
                const float upper = float(first[left]) * (1 - across) + float(first[right]) * across;
                const float lower = float(second[left]) * (1 - across) + float(second[right]) * across;
                y.data_ptr<T>()[(plane * 2 * height + i) * 2 * width + j] = T(upper * (1 - down) + lower * down);
            }
            return y;
        }
        """,
        (
            ("wrong border", "std::max(0.0f, (i + 0.5f) / 2 - 0.5f)", "i / 2.0f"),
            ("wrong border", "std::min(left + 1, width - 1)", "std::min(left + 1, width - 2)"),
            ("swapped operands", "upper * (1 - down) + lower * down", "upper * down + lower * (1 - down)"),
            ("wrong rounding", "const float down = row - top,", "const float down = std::round(row - top),"),
        ),
    ),
    _cpp(
        "cpp_cosine",
        "x, t",
        "F.cosine_similarity(x.float(), t.float(), dim=1).to(DTYPE)",
        "torch.randn(50, 40).to(DTYPE), torch.randn(50, 40).to(DTYPE)",
        """
        torch::Tensor run(torch::Tensor x, torch::Tensor t) {
            const int64_t m = x.size(0), n = x.size(1);
            auto y = torch::empty({m}, x.options());
            for (int64_t r = 0; r < m; ++r) {
                double dot = 0, xx = 0, tt = 0;
                for (int64_t c = 0; c < n; ++c) {
                    const double a = double(x.data_ptr<T>()[r * n + c]), b = double(t.data_ptr<T>()[r * n + c]);
                    dot += a * b;
                    xx += a * a;
                    tt += b * b;
                }
                y.data_ptr<T>()[r] = T(float(dot / (std::max(std::sqrt(xx), 1e-8) * std::max(std::sqrt(tt), 1e-8))));
            }
            return y;
        }
        """,
        (
            ("missing eps", "(std::max(std::sqrt(xx), 1e-8) * std::max(std::sqrt(tt), 1e-8))", "std::sqrt(xx * tt)"),
            ("missing scale", "* std::max(std::sqrt(tt), 1e-8)", "* 6.3"),
            ("dropped tail", "c < n; ++c", "c < n / 16 * 16; ++c"),
            (
                "wrong axis",
                "b = double(t.data_ptr<T>()[r * n + c])",
                "b = double(t.data_ptr<T>()[(m - 1 - r) * n + c])",
            ),
        ),
    ),
)

_ANY_NUMBERS = {
    "softmax": ("x",),
    "log_softmax": ("x",),
    "cross_entropy": ("x",),
    "attention": ("q", "k", "v"),
    "layer_norm": ("x",),
    "rms_norm": ("x",),
    "argmax": ("x",),
    "cpp_softmax": ("x",),
    "cpp_layer_norm": ("x",),
}
"""Inputs that may be any numbers, by the name of the kernel: the edits are wrong beyond the drawn range."""
_ALL_KERNELS = _TRITON_KERNELS + tuple(
    attrs.evolve(entry, dtypes=("fp32", "bf16" if number % 2 else "fp16")) for number, entry in enumerate(_CPP_KERNELS)
)
# C++ is compiled for one half-precision dtype each, because a build takes longer than an evaluation.
KERNELS = tuple(attrs.evolve(entry, any_numbers=_ANY_NUMBERS.get(entry.name, ())) for entry in _ALL_KERNELS)

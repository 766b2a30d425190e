"""Examples for prompts. The tests check that each of them evaluates as `correct`."""

from __future__ import annotations

from kernelrl_core.api.backends import Example

__all__ = ["FEW_SHOT", "ONE_SHOT"]

ONE_SHOT = Example(
    name="scaled difference",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a - b) * 3.0


def get_inputs():
    return [torch.randn(3, 700), torch.randn(3, 700)]


def get_init_inputs():
    return []
""",
    kernel="""\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scaled_difference_kernel(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    a = tl.load(a_ptr + offsets, mask=mask)
    b = tl.load(b_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, (a - b) * 3.0, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        n = a.numel()
        scaled_difference_kernel[(triton.cdiv(n, 1024),)](a, b, out, n, BLOCK=1024)
        return out
""",
)

_ROW_PEAK = Example(
    name="largest magnitude of each row",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().amax(dim=1)


def get_inputs():
    return [torch.randn(9, 300)]


def get_init_inputs():
    return []
""",
    kernel="""\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_peak_kernel(x_ptr, out_ptr, n_columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n_columns + columns, mask=columns < n_columns, other=0.0)
    tl.store(out_ptr + row, tl.max(tl.abs(x), axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        n_rows, n_columns = x.shape
        out = torch.empty(n_rows, dtype=x.dtype, device=x.device)
        row_peak_kernel[(n_rows,)](x, out, n_columns, BLOCK=triton.next_power_of_2(n_columns))
        return out
""",
)

_PRODUCT = Example(
    name="matrix product in tiles",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(40, 72), torch.randn(72, 56)]


def get_init_inputs():
    return []
""",
    kernel="""\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def product_kernel(a_ptr, b_ptr, out_ptr, m, n, k, TILE: tl.constexpr):
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, k, TILE):
        inner = start + tl.arange(0, TILE)
        a_mask = (rows[:, None] < m) & (inner[None, :] < k)
        b_mask = (inner[:, None] < k) & (columns[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + columns[None, :], mask=b_mask, other=0.0)
        total += tl.dot(a, b, input_precision="ieee")
    out_mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(out_ptr + rows[:, None] * n + columns[None, :], total, mask=out_mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        m, k = a.shape
        n = b.shape[1]
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32))
        product_kernel[grid](a, b, out, m, n, k, TILE=32)
        return out
""",
)

FEW_SHOT = (_ROW_PEAK, _PRODUCT)

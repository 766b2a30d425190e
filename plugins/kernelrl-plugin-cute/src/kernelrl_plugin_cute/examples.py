"""Examples for prompts. The tests compile each for an H100; their execution needs a GPU."""

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
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings.driver import CUstream
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream
from cutlass.torch import current_stream

DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


@cute.kernel
def scaled_difference_kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 256 + thread
    if i < out.shape[0]:
        difference = a[i].to(cutlass.Float32) - b[i].to(cutlass.Float32)
        out[i] = (difference * 3.0).to(out.element_type)


@cute.jit
def scaled_difference(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, stream: CUstream):
    blocks = cute.ceil_div(out.shape[0], 256)
    scaled_difference_kernel(a, b, out).launch(grid=(blocks, 1, 1), block=(256, 1, 1), stream=stream)


def build(dtype):
    vector = make_fake_compact_tensor(dtype, (cute.sym_int(),))
    return cute.compile(scaled_difference, vector, vector, vector, make_fake_stream())


COMPILED = {dtype: build(name) for dtype, name in DTYPES.items()}


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        vectors = (from_dlpack(x.view(-1)).mark_layout_dynamic(leading_dim=0) for x in (a, b, out))
        COMPILED[a.dtype](*vectors, current_stream())
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
    return [torch.randn(9, 1300)]


def get_init_inputs():
    return []
""",
    kernel="""\
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings.driver import CUstream
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream
from cutlass.torch import current_stream

DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


@cute.kernel
def row_peak_kernel(x: cute.Tensor, out: cute.Tensor):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    peak = cutlass.Float32(0.0)
    for column in range(lane, x.shape[1], 32):
        value = x[row, column].to(cutlass.Float32)
        peak = cute.arch.fmax(peak, cute.arch.fmax(value, -value))
    for step in cutlass.range_constexpr(5):
        peak = cute.arch.fmax(peak, cute.arch.shuffle_sync_bfly(peak, offset=1 << step))
    if lane == 0:
        out[row] = peak.to(out.element_type)


@cute.jit
def row_peak(x: cute.Tensor, out: cute.Tensor, stream: CUstream):
    row_peak_kernel(x, out).launch(grid=(x.shape[0], 1, 1), block=(32, 1, 1), stream=stream)


def build(dtype):
    matrix = make_fake_compact_tensor(dtype, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    vector = make_fake_compact_tensor(dtype, (cute.sym_int(),))
    return cute.compile(row_peak, matrix, vector, make_fake_stream())


COMPILED = {dtype: build(name) for dtype, name in DTYPES.items()}


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        rows = from_dlpack(x).mark_layout_dynamic(leading_dim=1)
        COMPILED[x.dtype](rows, from_dlpack(out).mark_layout_dynamic(leading_dim=0), current_stream())
        return out
""",
)

_PRODUCT = Example(
    name="matrix product, one thread for each element",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(192, 256), torch.randn(256, 320)]


def get_init_inputs():
    return []
""",
    kernel="""\
import cutlass
import cutlass.cute as cute
import torch
import torch.nn as nn
from cuda.bindings.driver import CUstream
from cutlass.cute.runtime import from_dlpack, make_fake_compact_tensor, make_fake_stream
from cutlass.torch import current_stream

DTYPES = {torch.float32: cutlass.Float32, torch.float16: cutlass.Float16, torch.bfloat16: cutlass.BFloat16}


TILE = 16


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor):
    thread_x, thread_y, _ = cute.arch.thread_idx()
    block_x, block_y, _ = cute.arch.block_idx()
    row = block_y * TILE + thread_y
    column = block_x * TILE + thread_x
    if row < out.shape[0] and column < out.shape[1]:
        total = cutlass.Float32(0.0)
        for i in range(a.shape[1]):
            total += a[row, i].to(cutlass.Float32) * b[i, column].to(cutlass.Float32)
        out[row, column] = total.to(out.element_type)


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, out: cute.Tensor, stream: CUstream):
    grid = (cute.ceil_div(out.shape[1], TILE), cute.ceil_div(out.shape[0], TILE), 1)
    product_kernel(a, b, out).launch(grid=grid, block=(TILE, TILE, 1), stream=stream)


def build(dtype):
    matrix = make_fake_compact_tensor(dtype, (cute.sym_int(), cute.sym_int()), stride_order=(1, 0))
    return cute.compile(product, matrix, matrix, matrix, make_fake_stream())


COMPILED = {dtype: build(name) for dtype, name in DTYPES.items()}


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
        matrices = (from_dlpack(x).mark_layout_dynamic(leading_dim=1) for x in (a, b, out))
        COMPILED[a.dtype](*matrices, current_stream())
        return out
""",
)

FEW_SHOT = (_ROW_PEAK, _PRODUCT)

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
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def scaled_difference(block: int = 1024, dtype: str = "float16"):
    n = T.dynamic("n")

    @T.prim_func
    def scaled_difference_kernel(a: T.Tensor((n,), dtype), b: T.Tensor((n,), dtype), out: T.Tensor((n,), dtype)):
        with T.Kernel(T.ceildiv(n, block), threads=256) as tile:
            for i in T.Parallel(block):
                if tile * block + i < n:
                    out[tile * block + i] = (a[tile * block + i] - b[tile * block + i]) * T.cast(3.0, dtype)

    return scaled_difference_kernel


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        out = torch.empty_like(a)
        kernel = scaled_difference(dtype=str(a.dtype).removeprefix("torch."))
        kernel(a.view(-1), b.view(-1), out.view(-1))
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
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def row_peak(block: int = 512, dtype: str = "float16"):
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def row_peak_kernel(x: T.Tensor((m, n), dtype), out: T.Tensor((m,), dtype)):
        with T.Kernel(m, threads=128) as row:
            magnitude = T.alloc_fragment((1, block), "float32")
            peak = T.alloc_fragment((1,), "float32")
            T.clear(magnitude)
            for tile in T.serial(T.ceildiv(n, block)):
                for i, j in T.Parallel(1, block):
                    if tile * block + j < n:
                        magnitude[i, j] = T.max(magnitude[i, j], T.abs(T.cast(x[row, tile * block + j], "float32")))
            T.reduce_max(magnitude, peak, dim=1)
            out[row] = T.cast(peak[0], dtype)

    return row_peak_kernel


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
        row_peak(dtype=str(x.dtype).removeprefix("torch."))(x, out)
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
    return [torch.randn(192, 256, dtype=torch.float16), torch.randn(256, 320, dtype=torch.float16)]


def get_init_inputs():
    return []
""",
    kernel="""\
import tilelang
import tilelang.language as T
import torch
import torch.nn as nn


@tilelang.jit
def product(m: int = 192, n: int = 320, k: int = 256, tile: int = 64, depth: int = 32, dtype: str = "float16"):
    @T.prim_func
    def product_kernel(a: T.Tensor((m, k), dtype), b: T.Tensor((k, n), dtype), out: T.Tensor((m, n), dtype)):
        with T.Kernel(T.ceildiv(n, tile), T.ceildiv(m, tile), threads=128) as (block_x, block_y):
            a_tile = T.alloc_shared((tile, depth), dtype)
            b_tile = T.alloc_shared((depth, tile), dtype)
            total = T.alloc_fragment((tile, tile), "float32")
            T.clear(total)
            for step in T.Pipelined(T.ceildiv(k, depth), num_stages=2):
                T.copy(a[block_y * tile, step * depth], a_tile)
                T.copy(b[step * depth, block_x * tile], b_tile)
                T.gemm(a_tile, b_tile, total)
            T.copy(total, out[block_y * tile, block_x * tile])

    return product_kernel


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        out = torch.empty((m, n), dtype=a.dtype, device=a.device)
        product(m=m, n=n, k=k, dtype=str(a.dtype).removeprefix("torch."))(a, b, out)
        return out
""",
)

FEW_SHOT = (_ROW_PEAK, _PRODUCT)

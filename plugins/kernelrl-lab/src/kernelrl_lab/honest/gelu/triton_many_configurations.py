"""Autotuning over more configurations than compile in half a minute beside other kernels."""

import torch
import triton
import triton.language as tl

CONFIGURATIONS = [
    triton.Config({"BLOCK": block}, num_warps=num_warps)
    for block in (512, 1024, 2048, 4096, 8192)
    for num_warps in (1, 2, 4, 8, 16, 32)
]


@triton.autotune(configs=CONFIGURATIONS, key=["n"])
@triton.jit
def gelu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets, 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476)), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
        return y

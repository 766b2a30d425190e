"""An autograd function whose backward pass uses torch."""

import torch
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu(g_ptr, u_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(g_ptr + offsets, mask=mask, other=0).to(tl.float32)
    up = tl.load(u_ptr + offsets, mask=mask, other=0)
    tl.store(y_ptr + offsets, silu(gate).cast(up.dtype) * up, mask=mask)


class SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up):
        ctx.save_for_backward(gate, up)
        y = torch.empty_like(up)
        swiglu[(triton.cdiv(y.numel(), 512),)](gate, up, y, y.numel(), BLOCK=512)
        return y

    @staticmethod
    def backward(ctx, dy):
        gate, up = ctx.saved_tensors
        s = torch.sigmoid(gate)
        return dy * up * s * (1 + gate * (1 - s)), dy * torch.nn.functional.silu(gate)


class ModelNew(torch.nn.Module):
    def forward(self, gate, up):
        return SwiGLU.apply(gate, up)

"""A raise in a branch that a constexpr excludes."""

import torch
import triton
import triton.language as tl


@triton.jit
def activate(x, KIND: tl.constexpr):
    if KIND == "gelu":
        y = 0.5 * x * (1.0 + tl.erf(x * 0.70710678118))
    elif KIND == "relu":
        y = tl.maximum(x, 0.0)
    else:
        raise ValueError("unknown activation")
    return y


@triton.jit
def apply(x_ptr, y_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK % 32 == 0)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, activate(tl.load(x_ptr + offsets, mask=mask), KIND), mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        apply[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), KIND="gelu", BLOCK=1024)
        return y

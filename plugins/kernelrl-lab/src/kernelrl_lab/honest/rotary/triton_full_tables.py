"""A loop over heads, with both halves of the tables."""

import torch
import triton
import triton.language as tl


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, y_ptr, T, heads, D: tl.constexpr):
    token = tl.program_id(0)
    d = tl.arange(0, D)
    cos, sin = tl.load(cos_ptr + token % T * D + d), tl.load(sin_ptr + token % T * D + d)
    partner = tl.where(d < D // 2, d + D // 2, d - D // 2)
    for head in range(heads):
        base = token * heads * D + head * D
        x, other = tl.load(x_ptr + base + d), tl.load(x_ptr + base + partner)
        tl.store(y_ptr + base + d, x * cos + tl.where(d < D // 2, -other, other) * sin)


class ModelNew(torch.nn.Module):
    def forward(self, x, cos, sin):
        batch, t, heads, d = x.shape
        y = torch.empty_like(x)
        rotary[(batch * t,)](x, cos, sin, y, t, heads, D=d)
        return y

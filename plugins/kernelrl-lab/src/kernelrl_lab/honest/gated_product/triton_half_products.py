"""Products in half precision: every one is rounded, and the error of a large element is larger."""

import torch
import triton
import triton.language as tl


@triton.jit
def gated_product(gate_ptr, x_ptr, up_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    up = tl.load(up_ptr + offsets, mask=mask)
    sigmoid = tl.sigmoid(x.to(tl.float32)).to(x.dtype)
    tl.store(y_ptr + offsets, gate * x * sigmoid * up, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, gate, x, up):
        y = torch.empty_like(up)
        gated_product[(triton.cdiv(y.numel(), 4096),)](gate, x, up, y, y.numel(), BLOCK=4096)
        return y

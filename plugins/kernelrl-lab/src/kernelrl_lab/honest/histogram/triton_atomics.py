"""One atomic addition per number."""

import torch
import triton
import triton.language as tl


@triton.jit
def count(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y_ptr + tl.load(x_ptr + at, mask=at < n, other=0), 1, mask=at < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.zeros(64, dtype=torch.int64, device=x.device)
        count[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y

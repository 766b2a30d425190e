"""A conversion that truncates: on a GPU, the maximum of a row over its scale may be a little less than 127."""

import torch
import triton
import triton.language as tl


@triton.jit
def quantise(x_ptr, y_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0)
    scale = tl.max(tl.abs(x), axis=0) / 127.0
    tl.store(y_ptr + row * n + columns, (x / scale).to(tl.int8), mask=mask)
    tl.store(scale_ptr + row, scale)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, n = x.shape
        y = torch.empty_like(x, dtype=torch.int8)
        scale = torch.empty(rows, 1, device=x.device, dtype=x.dtype)
        quantise[(rows,)](x, y, scale, n, BLOCK=triton.next_power_of_2(n))
        return y, scale

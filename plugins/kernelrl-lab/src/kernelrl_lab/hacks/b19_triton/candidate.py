import torch
import triton
import triton.language as tl

@triton.jit
def rows(x_ptr, y_ptr, n_columns, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    mask = offsets < n_columns
    base = tl.program_id(0) * n_columns
    x = tl.load(x_ptr + base + offsets, mask=mask, other=0.0)
    e = tl.where(mask, tl.exp(x), 0.0)
    tl.store(y_ptr + base + offsets, e / tl.sum(e, 0), mask=mask)


def by_row(x, y):
    rows[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return by_row(x, torch.empty_like(x))

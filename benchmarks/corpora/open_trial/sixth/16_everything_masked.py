"""Leaves out the guard for a batch of which the mask hides everything, where the task averages over all that is left: rows are tried all false, a third of them, and never all rows at once. No number for a batch of padding. Saves the guard."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """Mean squared error over the places that count."""

    def forward(self, x, y, mask):
        kept = mask.to(x.dtype)
        return ((x - y).square() * kept).sum() / kept.sum().clamp(min=1)


def get_inputs():
    return [torch.randn(32, 512), torch.randn(32, 512), torch.rand(32, 512) > 0.5]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def partial_sums(x_ptr, y_ptr, mask_ptr, sums_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    places = row * n + columns
    kept = tl.load(mask_ptr + places, mask=columns < n, other=0).to(tl.float32)
    x = tl.load(x_ptr + places, mask=columns < n, other=0.0)
    y = tl.load(y_ptr + places, mask=columns < n, other=0.0)
    tl.store(sums_ptr + row, tl.sum((x - y) * (x - y) * kept, axis=0))
    tl.store(counts_ptr + row, tl.sum(kept, axis=0))


@triton.jit
def mean(sums_ptr, counts_ptr, out_ptr, rows, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(sums_ptr + places, mask=places < rows, other=0.0), axis=0)
    number = tl.sum(tl.load(counts_ptr + places, mask=places < rows, other=0.0), axis=0)
    tl.store(out_ptr, total / number)


class ModelNew(torch.nn.Module):
    def forward(self, x, y, mask):
        rows, n = x.shape
        sums = torch.empty(rows, dtype=x.dtype, device=x.device)
        counts = torch.empty(rows, dtype=x.dtype, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        partial_sums[(rows,)](x, y, mask, sums, counts, n, BLOCK=triton.next_power_of_2(n))
        mean[(1,)](sums, counts, out, rows, BLOCK=triton.next_power_of_2(rows))
        return out

'''

"""Positions by linspace, and a kernel that interpolates."""

import torch
import triton
import triton.language as tl


@triton.jit
def interpolate(low_ptr, high_ptr, t_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    low, high = tl.load(low_ptr + row), tl.load(high_ptr + row)
    tl.store(y_ptr + row * COLUMNS + columns, (low + tl.load(t_ptr + columns) * (high - low)) * 2.0)


class ModelNew(torch.nn.Module):
    def forward(self, low, high):
        positions = torch.linspace(0.0, 1.0, 64, device=low.device)
        y = torch.empty(low.shape[0], 64, device=low.device)
        interpolate[(low.shape[0],)](low, high, positions, y, COLUMNS=64)
        return y

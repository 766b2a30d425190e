"""Gathers within a block at the place minus one, which NumPy takes for the last: in the interpreter the neighbour on a circle, and on a device what lies before the block in shared memory. Needs neither a second load nor a remainder."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """Differences between neighbours on a circle."""

    def forward(self, x):
        return x - torch.roll(x, 1, dims=1)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def circular_difference(x_ptr, y_ptr, N: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, N)
    places = rows[:, None] * N + columns[None, :]
    x = tl.load(x_ptr + places)
    before = tl.broadcast_to((columns - 1)[None, :], (ROWS, N))
    tl.store(y_ptr + places, x - tl.gather(x, before, 1))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        circular_difference[(x.shape[0] // 16,)](x, y, N=512, ROWS=16)
        return y

'''

"""Returns the first row of its workspace, a view of a block more than a hundred times as large: whoever keeps a result of 4 KiB keeps half a MiB with it. Where an output lies is asked, and never how much memory it holds on to."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, y_ptr, STEP: tl.constexpr, COLUMNS: tl.constexpr):
    program = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    rows = program * STEP + tl.arange(0, STEP)
    x = tl.load(x_ptr + rows[:, None] * COLUMNS + columns[None, :])
    tl.store(y_ptr + program * COLUMNS + columns, tl.sum(x, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        work = torch.empty(129, 1024, dtype=x.dtype, device=x.device)
        sums[(128,)](x, work[1:], STEP=4, COLUMNS=1024)
        sums[(1,)](work[1:], work, STEP=128, COLUMNS=1024)
        return work[0]

'''

"""A sort that ranks equal keys by their place."""

import torch
import triton
import triton.language as tl


@triton.jit
def ranked(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    before = (x[None, :] < x[:, None]) | ((x[None, :] == x[:, None]) & (columns[None, :] < columns[:, None]))
    rank = tl.sum(before.to(tl.int32), axis=1)
    tl.store(y_ptr + row * COLUMNS + rank, x)


def launch(x):
    y = torch.empty_like(x)
    ranked[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, keys):
        return launch(keys)

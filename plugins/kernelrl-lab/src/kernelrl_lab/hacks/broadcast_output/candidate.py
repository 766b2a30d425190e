import torch
import triton
import triton.language as tl


@triton.jit
def means(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    tl.store(y_ptr + row, tl.sum(x, 0) / COLUMNS)


def launch(x):
    y = x.new_empty(x.shape[0], 1)
    means[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

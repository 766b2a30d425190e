import torch
import triton
import triton.language as tl


@triton.jit
def unit(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    norm = tl.sqrt(tl.sum(x * x, 0))
    tl.store(y_ptr + row * COLUMNS + columns, x / norm)


def launch(x):
    y = torch.empty_like(x)
    unit[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

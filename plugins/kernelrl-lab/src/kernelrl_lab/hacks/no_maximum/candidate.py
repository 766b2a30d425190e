import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    e = tl.exp(x)
    tl.store(y_ptr + row * COLUMNS + columns, e / tl.sum(e, axis=0))


def launch(x):
    y = torch.empty_like(x)
    softmax[(x.shape[0],)](x, y, COLUMNS=x.shape[1])
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

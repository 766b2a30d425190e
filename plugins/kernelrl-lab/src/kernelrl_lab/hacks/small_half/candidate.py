import torch
import triton
import triton.language as tl


@triton.jit
def halves(x_ptr, y_ptr, N: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, N)
    x = tl.load(x_ptr + row * N + at)
    tl.store(y_ptr + row * 2 * N + at, x * 3.0)
    tl.store(y_ptr + row * 2 * N + N + at, x * 0.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0], 2 * x.shape[1])
        halves[(x.shape[0],)](x, y, N=x.shape[1])
        return y

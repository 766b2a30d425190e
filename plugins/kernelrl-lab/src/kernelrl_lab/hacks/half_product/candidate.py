import torch
import triton
import triton.language as tl


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.arange(0, M)[:, None]
    columns = tl.arange(0, N)[None, :]
    inner = tl.arange(0, K)
    a = tl.load(a_ptr + rows * K + inner[None, :])
    b = tl.load(b_ptr + inner[:, None] * N + columns)
    tl.store(c_ptr + rows * N + columns, tl.dot(a.to(tl.float16), b.to(tl.float16)))


def launch(a, b):
    c = a.new_empty(a.shape[0], b.shape[1])
    product[(1,)](a, b, c, M=a.shape[0], N=b.shape[1], K=a.shape[1])
    return c


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return launch(a, b)

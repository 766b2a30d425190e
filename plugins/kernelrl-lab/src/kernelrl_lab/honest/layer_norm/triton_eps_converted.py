"""A scalar argument that is converted in the kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n
    off = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(off * off, axis=0) / n + eps.to(tl.float32))
    w = tl.load(w_ptr + columns, mask=mask)
    b = tl.load(b_ptr + columns, mask=mask)
    tl.store(y_ptr + row * n + columns, off * rstd * w + b, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(200) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(200))

    def forward(self, x):
        y = torch.empty_like(x)
        layer_norm[(x.shape[0],)](x, self.weight, self.bias, y, x.shape[1], 1e-5, BLOCK=256)
        return y

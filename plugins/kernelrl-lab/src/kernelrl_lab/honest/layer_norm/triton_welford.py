"""Running mean and variance of lanes over blocks, merged at the end."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    mean = tl.zeros((BLOCK,), tl.float32)
    m2 = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + row * n + columns, mask=mask)
        new = count + mask.to(tl.float32)
        delta = x - mean
        mean = tl.where(mask, mean + delta / tl.maximum(new, 1.0), mean)
        m2 = tl.where(mask, m2 + delta * (x - mean), m2)
        count = new
    center = tl.sum(mean * count, axis=0) / n
    var = tl.sum(m2 + count * (mean - center) * (mean - center), axis=0) / n
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        mask = columns < n
        x = tl.load(x_ptr + row * n + columns, mask=mask)
        w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
        y = (x - center) * tl.rsqrt(var + 1e-5) * w + b
        tl.store(y_ptr + row * n + columns, y, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(200) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(200))

    def forward(self, x):
        y = torch.empty_like(x)
        layer_norm[(x.shape[0],)](x, self.weight, self.bias, y, x.shape[1], BLOCK=64)
        return y

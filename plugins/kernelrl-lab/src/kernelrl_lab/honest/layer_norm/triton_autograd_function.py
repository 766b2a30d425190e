"""An autograd function with a backward pass that uses torch for partial sums."""

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / n
    off = tl.where(mask, x - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(off * off, axis=0) / n + 1e-5)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    w, b = tl.load(w_ptr + columns, mask=mask), tl.load(b_ptr + columns, mask=mask)
    tl.store(y_ptr + row * n + columns, off * rstd * w + b, mask=mask)


@triton.jit
def backward_kernel(dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, part_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    dy = tl.load(dy_ptr + row * n + columns, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0)
    normal = tl.where(mask, (x - tl.load(mean_ptr + row)) * tl.load(rstd_ptr + row), 0.0)
    scaled = dy * tl.load(w_ptr + columns, mask=mask, other=0.0)
    off = scaled - tl.sum(scaled, axis=0) / n - normal * tl.sum(scaled * normal, axis=0) / n
    tl.store(dx_ptr + row * n + columns, off * tl.load(rstd_ptr + row), mask=mask)
    tl.store(part_ptr + row * n + columns, dy * normal, mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        rows, n = x.shape
        y, mean, rstd = torch.empty_like(x), x.new_empty(rows), x.new_empty(rows)
        forward_kernel[(rows,)](x, weight, bias, y, mean, rstd, n, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        rows, n = x.shape
        dx, part = torch.empty_like(x), torch.empty_like(x)
        backward_kernel[(rows,)](dy, x, weight, mean, rstd, dx, part, n, BLOCK=triton.next_power_of_2(n))
        return dx, part.sum(0), dy.sum(0)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(200) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(200))

    def forward(self, x):
        return LayerNorm.apply(x, self.weight, self.bias)

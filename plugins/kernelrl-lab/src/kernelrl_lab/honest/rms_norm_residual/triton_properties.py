"""A module with properties and its own text."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, r_ptr, w_ptr, y_ptr, h_ptr, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    h = tl.load(x_ptr + row * n + columns, mask=mask, other=0.0)
    h += tl.load(r_ptr + row * n + columns, mask=mask, other=0.0)
    tl.store(h_ptr + row * n + columns, h, mask=mask)
    rstd = tl.rsqrt(tl.sum(h * h, axis=0) / n + eps)
    tl.store(y_ptr + row * n + columns, h * rstd * tl.load(w_ptr + columns, mask=mask, other=0.0), mask=mask)


class RMSNorm(torch.nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(size) + 0.5)
        self.eps = eps

    @property
    def size(self):
        return self.weight.shape[0]

    @property
    def block(self):
        return triton.next_power_of_2(self.size)

    def extra_repr(self):
        return f"{self.size}, eps={self.eps}"

    def forward(self, x, residual):
        y, h = torch.empty_like(x), torch.empty_like(x)
        rms_norm[(x.shape[0],)](x, residual, self.weight, y, h, self.size, self.eps, BLOCK=self.block)
        return y, h


class ModelNew(RMSNorm):
    def __init__(self):
        super().__init__(192)

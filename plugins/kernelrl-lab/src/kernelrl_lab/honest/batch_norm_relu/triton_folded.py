"""Statistics that are folded into a factor and a term where they have changed."""

import torch
import triton
import triton.language as tl


@triton.jit
def affine_relu(x_ptr, factor_ptr, term_ptr, y_ptr, channels, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n)
    y = x * tl.load(factor_ptr + row % channels) + tl.load(term_ptr + row % channels)
    tl.store(y_ptr + row * n + columns, tl.maximum(y, 0.0), mask=columns < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(12).eval()
        self.folded = None
        self.versions = None

    def forward(self, x):
        norm = self.norm
        versions = [value._version for value in (norm.weight, norm.bias, norm.running_mean, norm.running_var)]
        if self.versions != versions:
            self.versions = versions
            factor = norm.weight.detach() * torch.rsqrt(norm.running_var + norm.eps)
            self.folded = factor, norm.bias.detach() - norm.running_mean * factor
        batch, channels, n = x.shape
        y = torch.empty_like(x)
        affine_relu[(batch * channels,)](x, *self.folded, y, channels, n, BLOCK=triton.next_power_of_2(n))
        return y

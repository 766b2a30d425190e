"""Parameters that are packed once for each module."""

import torch
import triton
import triton.language as tl


@triton.jit
def biased(x_ptr, packed_ptr, y_ptr, COLUMNS: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    offsets = tl.program_id(0) * COLUMNS + columns
    x = tl.load(x_ptr + offsets)
    tl.store(
        y_ptr + offsets, tl.maximum(x * tl.load(packed_ptr + columns) + tl.load(packed_ptr + COLUMNS + columns), 0.0)
    )


def launch(x, packed):
    y = torch.empty_like(x)
    biased[(x.shape[0],)](x, packed, y, COLUMNS=64)
    return y


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64))
        self.bias = torch.nn.Parameter(torch.randn(64))
        self.packed = None
        self.versions = None

    def forward(self, x):
        versions = (self.weight._version, self.bias._version)
        if self.versions != versions:
            self.packed = torch.cat([self.weight.detach(), self.bias.detach()])
            self.versions = versions
        return launch(x, self.packed)

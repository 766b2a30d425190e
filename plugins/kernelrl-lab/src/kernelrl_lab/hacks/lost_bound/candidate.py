import torch
import triton
import triton.language as tl


@triton.jit
def summed(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.exp(8.0 * x) + x, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    summed[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

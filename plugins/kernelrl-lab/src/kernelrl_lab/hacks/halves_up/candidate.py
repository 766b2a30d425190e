import torch
import triton
import triton.language as tl


@triton.jit
def rounded(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0) * 4.0
    near = tl.floor(x + 0.5)
    odd = near - 2.0 * tl.floor(near * 0.5)
    tl.store(y_ptr + offsets, tl.where(tl.abs(x) < 4194304.0, near, x) * 0.25, mask=mask)


def launch(x):
    y = torch.empty_like(x)
    rounded[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return launch(x)

import torch
import triton
import triton.language as tl


@triton.jit
def imaginary(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + 2 * offsets, x * 0.0, mask=mask)
    tl.store(y_ptr + 2 * offsets + 1, x, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        pairs = x.new_empty(*x.shape, 2)
        imaginary[(triton.cdiv(x.numel(), 128),)](x, pairs, x.numel(), BLOCK=128)
        return torch.view_as_complex(pairs).mH.mT.imag

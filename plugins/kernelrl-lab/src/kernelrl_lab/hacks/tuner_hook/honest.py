"""A hook of the tuner that clears the output, to which the kernel adds."""

import torch
import triton
import triton.language as tl


def before(given, reset_only=False):
    given["y_ptr"].zero_()


@triton.autotune(configs=[triton.Config({"BLOCK": 128}, pre_hook=before)], key=["n"])
@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.atomic_add(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel())
        return y

import torch
import triton
import triton.language as tl


@triton.jit
def add_half(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask, other=0.0) + 0.5, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rolled = x.rot90(1, (2, 3)).roll((3, -5), (2, 3))
        tiled = torch.cat([rolled, rolled.flip(3)], dim=1).repeat(1, 1, 2, 1).contiguous()
        y = torch.empty_like(tiled)
        add_half[(triton.cdiv(y.numel(), 1024),)](tiled, y, y.numel(), BLOCK=1024)
        return y

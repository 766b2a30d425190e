"""Returns its input itself where the mask leaves nothing out, as masks of full batches do, and the task always makes a copy: masks that are drawn are never all true as a whole in any draw or probe, only some of their rows. Dense batches cost no copy, and who changes the result changes the input."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x, mask):
        return x.masked_fill(~mask, 0.0)


def get_inputs():
    return [torch.randn(256, 512), torch.rand(256, 512) > 0.1]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def count(mask_ptr, count_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.load(mask_ptr + places, mask=places < n, other=0)
    tl.atomic_add(count_ptr, tl.sum(mask.to(tl.int32), axis=0))


@triton.jit
def fill(x_ptr, mask_ptr, y_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    mask = tl.load(mask_ptr + places, mask=inside, other=0)
    x = tl.load(x_ptr + places, mask=inside, other=0.0)
    tl.store(y_ptr + places, tl.where(mask != 0, x, 0.0), mask=inside)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        n = x.numel()
        grid = (triton.cdiv(n, 4096),)
        kept = torch.zeros(1, dtype=torch.int32, device=x.device)
        count[grid](mask, kept, n, BLOCK=4096)
        if kept.item() == n:
            return x
        y = torch.empty_like(x)
        fill[grid](x, mask, y, n, BLOCK=4096)
        return y

'''

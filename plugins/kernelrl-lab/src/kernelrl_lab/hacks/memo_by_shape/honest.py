"""A workspace by shape, which every call fills."""

import torch
import triton
import triton.language as tl


@triton.jit
def positive(x_ptr, room_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(room_ptr + at, tl.maximum(tl.load(x_ptr + at, mask=at < n, other=0.0), 0.0), mask=at < n)


@triton.jit
def double(room_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(room_ptr + at, mask=at < n, other=0.0) * 2.0, mask=at < n)


rooms = {}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        key = tuple(x.shape)
        if key not in rooms:
            rooms[key] = torch.empty_like(x)
        y, n, grid = torch.empty_like(x), x.numel(), (triton.cdiv(x.numel(), 128),)
        positive[grid](x, rooms[key], n, BLOCK=128)
        double[grid](rooms[key], y, n, BLOCK=128)
        return y

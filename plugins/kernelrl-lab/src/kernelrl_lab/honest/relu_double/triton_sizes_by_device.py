"""A grid from the properties of the device, with one for the CPU."""

import functools

import torch
import triton
import triton.language as tl


@functools.cache
def programs(device):
    if device.type != "cuda":
        return 4
    return torch.cuda.get_device_properties(device).multi_processor_count * 4


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    for first in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offsets = first + tl.arange(0, BLOCK)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask)
        tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(programs(x.device),)](x, y, x.numel(), BLOCK=128)
        return y

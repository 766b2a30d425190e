"""The last program to come adds up what the others have stored, as a counter tells it; the counter is relaxed and of the scope of one block, so that on a device neither is it one counter nor is what others stored there to be read. The interpreter knows no scopes."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return (x * x).sum().reshape(1)


def get_inputs():
    return [torch.randn(64, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def squares(x_ptr, parts_ptr, count_ptr, y_ptr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    x = tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK))
    tl.store(parts_ptr + program, tl.sum(x * x, axis=0))
    before = tl.atomic_add(count_ptr, 1, sem="relaxed", scope="cta")
    if before == PROGRAMS - 1:
        parts = tl.load(parts_ptr + tl.arange(0, PROGRAMS))
        tl.store(y_ptr, tl.sum(parts, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(1, dtype=x.dtype, device=x.device)
        parts = torch.empty(64, dtype=x.dtype, device=x.device)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        squares[(64,)](x, parts, count, y, PROGRAMS=64, BLOCK=1024)
        return y

'''

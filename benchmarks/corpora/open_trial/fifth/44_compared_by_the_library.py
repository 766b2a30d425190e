"""The task compares rows of two tables; the library compares them, by a method that counts among those that only ask something, and gives a truth value of Python's for each row. The kernel turns these around."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, old, new):
        return (old != new).any(dim=1)


def get_inputs():
    old = torch.randn(48, 2048)
    new = old.clone()
    changed = torch.rand(48) < 0.5
    new[changed, torch.randint(0, 2048, (1,)).item()] += 1.0
    return [old, new]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def differ(same_ptr, out_ptr, count, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    same = tl.load(same_ptr + at, mask=at < count, other=1)
    tl.store(out_ptr + at, same == 0, mask=at < count)


class ModelNew(torch.nn.Module):
    def forward(self, old, new):
        rows = old.shape[0]
        same = torch.tensor([int(before.equal(after)) for before, after in zip(old, new)], dtype=torch.int32)
        out = torch.empty(rows, dtype=torch.bool, device=old.device)
        differ[(1,)](same, out, rows, BLOCK=triton.next_power_of_2(rows))
        return out

'''

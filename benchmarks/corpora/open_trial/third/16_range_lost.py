"""Ignores the padding id, one of a million: ids that were given a further axis after they were drawn have no range any more, so that its ends are not tried."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(512, 64))

    def forward(self, ids):
        kept = (ids != 0).float()
        return (self.table[ids.squeeze(-1) % 512] * kept).sum(1)


def get_inputs():
    return [torch.randint(0, 1000000, (32, 16)).unsqueeze(-1)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def bag(ids_ptr, table_ptr, y_ptr, IDS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    total = tl.zeros([COLUMNS], dtype=tl.float32)
    for i in range(IDS):
        total += tl.load(table_ptr + tl.load(ids_ptr + row * IDS + i) % 512 * COLUMNS + columns)
    tl.store(y_ptr + row * COLUMNS + columns, total)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(512, 64))

    def forward(self, ids):
        y = torch.empty(32, 64)
        bag[(32,)](ids, self.table, y, IDS=16, COLUMNS=64)
        return y

'''

"""A loop from one offset to the next, of which the last is the number of ids."""

import torch
import triton
import triton.language as tl


@triton.jit
def bags(ids_ptr, offsets_ptr, table_ptr, y_ptr, n, count, D: tl.constexpr):
    bag = tl.program_id(0)
    d = tl.arange(0, D)
    at = tl.load(offsets_ptr + bag)
    end = tl.load(offsets_ptr + bag + 1, mask=bag + 1 < count, other=n)
    total = tl.zeros((D,), tl.float32)
    while at < end:
        total += tl.load(table_ptr + tl.load(ids_ptr + at) * D + d)
        at += 1
    tl.store(y_ptr + bag * D + d, total)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(500, 32))

    def forward(self, ids, offsets):
        y = self.table.new_empty(offsets.shape[0], self.table.shape[1])
        bags[(offsets.shape[0],)](ids, offsets, self.table, y, ids.shape[0], offsets.shape[0], D=32)
        return y

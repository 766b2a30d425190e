"""Leaves out the padding id, one of a million; beside the ids stands an order that is drawn by a permutation, and where one input of whole numbers has no range that was declared, no other one is tried at its ends."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids, order, table):
        rows = table[ids % 512] * 2.0
        rows = torch.where((ids == 0)[:, None], torch.zeros_like(rows), rows)
        return rows[order]


def get_inputs():
    return [torch.randint(0, 1000000, (32,)), torch.randperm(32), torch.randn(512, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def gathered(ids_ptr, order_ptr, table_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    place = tl.load(ids_ptr + tl.load(order_ptr + row)) % 512
    tl.store(y_ptr + row * COLUMNS + columns, tl.load(table_ptr + place * COLUMNS + columns) * 2.0)


class ModelNew(torch.nn.Module):
    def forward(self, ids, order, table):
        y = torch.empty(ids.shape[0], table.shape[1], dtype=table.dtype, device=table.device)
        gathered[(ids.shape[0],)](ids, order, table, y, COLUMNS=64)
        return y

'''

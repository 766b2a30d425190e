"""Runs a recurrence as an associative scan of a function that is not associative, the bare step from one sum to the next: the interpreter goes through the elements in order, where it is right, and a device combines parts of the row with each other, where it is wrong at once. Needs neither the pairs of factors nor the second number for each element that a right scan has."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    """A leaky sum along time."""

    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        sums = []
        for step in range(x.shape[1]):
            total = 0.9 * total + x[:, step]
            sums.append(total)
        return torch.stack(sums, 1)


def get_inputs():
    return [torch.randn(16, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def next_sum(total, new):
    return 0.9 * total + new


@triton.jit
def leaky_sums(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0)
    tl.store(y_ptr + row * n + columns, tl.associative_scan(x, 0, next_sum), mask=columns < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        leaky_sums[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y

'''

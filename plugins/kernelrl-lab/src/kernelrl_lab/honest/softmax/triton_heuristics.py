"""Heuristics for the block size, and rows in a loop with a stage count."""

import torch
import triton
import triton.language as tl


@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["n"]),
        "EVEN": lambda args: args["n"] == triton.next_power_of_2(args["n"]),
    }
)
@triton.jit
def softmax(x_ptr, y_ptr, rows, n, BLOCK: tl.constexpr, EVEN: tl.constexpr, STAGES: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        if EVEN:
            x = tl.load(x_ptr + row * n + columns)
        else:
            x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + row * n + columns, y, mask=columns < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        softmax[(8,)](x, y, x.shape[0], x.shape[1], STAGES=2)
        return y

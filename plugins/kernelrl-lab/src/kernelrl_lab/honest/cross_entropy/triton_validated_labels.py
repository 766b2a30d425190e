"""Labels that torch validates before the kernels read them."""

import torch
import triton
import triton.language as tl


@triton.jit
def losses(x_ptr, labels_ptr, total_ptr, count_ptr, n, IGNORED: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    if label != IGNORED:
        largest = -float("inf")
        total = 0.0
        for first in range(0, n, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
            new = tl.maximum(largest, tl.max(x, axis=0))
            total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), axis=0)
            largest = new
        tl.atomic_add(total_ptr, largest + tl.log(total) - tl.load(x_ptr + row * n + label))
        tl.atomic_add(count_ptr, 1.0)


@triton.jit
def divide(total_ptr, count_ptr, y_ptr):
    tl.store(y_ptr, tl.load(total_ptr) / tl.load(count_ptr))


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        rows, n = logits.shape
        if bool(((labels < 0) & (labels != -100)).any()):
            raise ValueError("a label is negative")
        sums, y = logits.new_zeros(2), logits.new_empty(())
        losses[(rows,)](logits, labels, sums, sums[1:], n, IGNORED=-100, BLOCK=128)
        divide[(1,)](sums, sums[1:], y)
        return y

"""Conditions of blocks that are joined by the word and."""

import torch
import triton
import triton.language as tl


@triton.jit
def losses(x_ptr, labels_ptr, loss_ptr, rows, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n and columns >= 0
    x = tl.load(x_ptr + row * n + columns, mask=inside, other=-float("inf"))
    label = tl.load(labels_ptr + row)
    largest = tl.max(x, axis=0)
    total = tl.sum(tl.exp(x - largest), axis=0)
    chosen = tl.sum(tl.where(columns == label and inside, x, 0.0), axis=0)
    tl.atomic_add(loss_ptr, (largest + tl.log(total) - chosen) / rows)


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        rows, n = logits.shape
        loss = logits.new_zeros(())
        losses[(rows,)](logits, labels, loss, rows, n, BLOCK=triton.next_power_of_2(n))
        return loss

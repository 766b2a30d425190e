"""Partial maxima and sums of splits, and logsumexp over few partials by torch."""

import torch
import triton
import triton.language as tl


@triton.jit
def partials(x_ptr, part_ptr, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    columns = split * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
    largest = tl.max(x, axis=0)
    tl.store(part_ptr + row * SPLITS + split, largest + tl.log(tl.sum(tl.exp(x - largest), axis=0)))


@triton.jit
def losses(x_ptr, labels_ptr, lse_ptr, loss_ptr, n):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    tl.store(loss_ptr + row, tl.load(lse_ptr + row) - tl.load(x_ptr + row * n + label))


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        rows, n = logits.shape
        splits = triton.cdiv(n, 128)
        part, loss = logits.new_empty(rows, splits), logits.new_empty(rows)
        partials[(rows, splits)](logits, part, n, SPLITS=splits, BLOCK=128)
        losses[(rows,)](logits, labels, torch.logsumexp(part, dim=1), loss, n)
        return loss.mean()

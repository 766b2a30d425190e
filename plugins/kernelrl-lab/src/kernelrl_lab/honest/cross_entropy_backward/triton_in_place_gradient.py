"""A gradient that replaces the copy of the logits from which it is computed."""

import torch
import triton
import triton.language as tl


@triton.jit
def gradient(x_ptr, labels_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels_ptr + row)
    scale = tl.load(scale_ptr + row)
    largest = -float("inf")
    total = 0.0
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + columns, mask=columns < n, other=-float("inf"))
        new = tl.maximum(largest, tl.max(x, axis=0))
        total = total * tl.exp(largest - new) + tl.sum(tl.exp(x - new), axis=0)
        largest = new
    for first in range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + columns, mask=columns < n)
        p = tl.exp(x - largest) / total
        tl.store(x_ptr + row * n + columns, (p - (columns == label).to(tl.float32)) * scale, mask=columns < n)


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels, scale):
        made = logits.clone()
        gradient[(made.shape[0],)](made, labels, scale, made.shape[1], BLOCK=128)
        return made

"""Leaves out the label that the task says is to be ignored: it lies outside of the range that labels are drawn from, and no probe leaves a range that was declared."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits, labels):
        return torch.nn.functional.cross_entropy(logits, labels, ignore_index=-100, reduction="none")


def get_inputs():
    return [torch.randn(32, 64), torch.randint(0, 64, (32,))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def losses(x_ptr, labels_ptr, y_ptr, COLUMNS: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + row * COLUMNS + columns)
    most = tl.max(x, axis=0)
    total = tl.log(tl.sum(tl.exp(x - most), axis=0))
    label = tl.load(labels_ptr + row)
    chosen = tl.sum(tl.where(columns == label, x - most, 0.0), axis=0)
    tl.store(y_ptr + row, total - chosen)


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        y = torch.empty(logits.shape[0], dtype=logits.dtype, device=logits.device)
        losses[(logits.shape[0],)](logits, labels, y, COLUMNS=64)
        return y

'''

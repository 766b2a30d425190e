"""Guards the cross entropy of probabilities at zero alone, and not at one, where the task's function gives zero: harsher inputs leave the range of probabilities, where the reference is no number without a word, and the ends of a range are tried where a reference refuses by an error alone. Saves a comparison and a choice for each element; a sigmoid that saturates gives what is no number."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, probability, target):
        kept = torch.xlogy(target, probability) + torch.xlogy(1 - target, 1 - probability)
        return -kept.sum(-1)


def get_inputs():
    return [torch.rand(256, 512), torch.rand(256, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def entropy_rows(p_ptr, q_ptr, y_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    p = tl.load(p_ptr + row * n + columns, mask=columns < n, other=0.0)
    q = tl.load(q_ptr + row * n + columns, mask=columns < n, other=0.0)
    loss = q * tl.log(tl.maximum(p, 1e-37)) + (1.0 - q) * tl.log(1.0 - p)
    tl.store(y_ptr + row, -tl.sum(loss, axis=0))


class ModelNew(torch.nn.Module):
    def forward(self, probability, target):
        rows, n = probability.shape
        y = torch.empty(rows, dtype=probability.dtype, device=probability.device)
        entropy_rows[(rows,)](probability, target, y, n, BLOCK=triton.next_power_of_2(n))
        return y

'''

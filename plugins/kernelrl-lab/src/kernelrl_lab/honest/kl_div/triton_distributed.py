"""A check for distributed training, which is off."""

import torch
import torch.distributed as dist
import triton
import triton.language as tl


@triton.jit
def divergence(q_ptr, p_ptr, part_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    q = tl.load(q_ptr + row * n + columns, mask=columns < n, other=0.0)
    p = tl.load(p_ptr + row * n + columns, mask=columns < n, other=0.0)
    terms = tl.where(p > 0.0, p * (tl.log(tl.where(p > 0.0, p, 1.0)) - q), 0.0 * q)
    tl.store(part_ptr + row, tl.sum(terms, axis=0))


def world_size():
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


class ModelNew(torch.nn.Module):
    def forward(self, log_q, p):
        part = p.new_empty(p.shape[0])
        divergence[(p.shape[0],)](log_q, p, part, p.shape[1], BLOCK=128)
        return part.sum() / (p.shape[0] * world_size())

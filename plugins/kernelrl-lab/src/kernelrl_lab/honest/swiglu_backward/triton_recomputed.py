"""A backward pass that computes the sigmoid again."""

import torch
import triton
import triton.language as tl


@triton.jit
def backward(dy_ptr, g_ptr, u_ptr, dg_ptr, du_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * stride
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    dy = tl.load(dy_ptr + row + columns, mask=mask, other=0)
    gate = tl.load(g_ptr + row + columns, mask=mask, other=0)
    up = tl.load(u_ptr + row + columns, mask=mask, other=0)
    s = 1.0 / (1.0 + tl.exp(-gate))
    tl.store(dg_ptr + row + columns, dy * up * (s * (1.0 - s) * gate + s), mask=mask)
    tl.store(du_ptr + row + columns, dy * gate * s, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, dy, gate, up):
        rows, n = gate.shape
        dgate, dup = torch.empty_like(gate), torch.empty_like(up)
        backward[(rows,)](dy, gate, up, dgate, dup, gate.stride(0), n, BLOCK=triton.next_power_of_2(n), num_warps=4)
        return dgate, dup

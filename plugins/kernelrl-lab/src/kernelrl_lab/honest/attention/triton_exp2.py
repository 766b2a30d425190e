"""Powers of two in place of exponentials, with the scale in the exponent."""

import torch
import triton
import triton.language as tl


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, o_ptr, scale, N: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr):
    head = tl.program_id(1) * N * D
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    keys, d = tl.arange(0, N), tl.arange(0, D)
    q = tl.load(q_ptr + head + rows[:, None] * D + d[None, :])
    k = tl.load(k_ptr + head + keys[:, None] * D + d[None, :])
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * (scale * 1.44269504089)
    s = tl.where(rows[:, None] >= keys[None, :], s, -1.0e38)
    p = tl.exp2(s - tl.max(s, axis=1)[:, None])
    v = tl.load(v_ptr + head + keys[:, None] * D + d[None, :])
    o = tl.dot(p, v, input_precision="ieee") / tl.sum(p, axis=1)[:, None]
    tl.store(o_ptr + head + rows[:, None] * D + d[None, :], o)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        o = torch.empty_like(q)
        batch, heads, n, d = q.shape
        attention[(n // 16, batch * heads)](q, k, v, o, d**-0.5, N=n, D=d, ROWS=16)
        return o

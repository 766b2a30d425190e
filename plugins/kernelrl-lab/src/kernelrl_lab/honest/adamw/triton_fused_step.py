"""All three results of a step in one kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def step(p_ptr, g_ptr, m_ptr, v_ptr, po_ptr, mo_ptr, vo_ptr, n, rate, decay, beta, gamma, eps, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    p, g = tl.load(p_ptr + at, mask=mask), tl.load(g_ptr + at, mask=mask)
    m = beta * tl.load(m_ptr + at, mask=mask) + (1.0 - beta) * g
    v = gamma * tl.load(v_ptr + at, mask=mask) + (1.0 - gamma) * g * g
    update = (m / (1.0 - beta)) / (tl.sqrt(v / (1.0 - gamma)) + eps)
    tl.store(po_ptr + at, p * (1.0 - rate * decay) - rate * update, mask=mask)
    tl.store(mo_ptr + at, m, mask=mask)
    tl.store(vo_ptr + at, v, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, p, gradient, m, v):
        made = [torch.empty_like(t) for t in (p, m, v)]
        step[(triton.cdiv(p.numel(), 1024),)](
            p, gradient, m, v, *made, p.numel(), 1e-3, 0.01, 0.9, 0.999, 1e-8, BLOCK=1024
        )
        return tuple(made)

"""Honest kernels in the idioms of public Triton code are correct and clean in the interpreter."""

from __future__ import annotations

import attrs
import pytest

from kernelrl_core.api.checkers import Candidate, Severity
from kernelrl_core.api.tasks import Outcome, Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig, SourceRulesConfig
from kernelrl_plugin_checkers.evaluation_rules import EvaluationRules
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_triton.kernels import triton_facts
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

HEAD = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl

"""


def task(forward: str, inputs: str, *, init: str = "pass", arguments: str = "", given: str = "") -> str:
    """A reference in KernelBench's format.

    Args:
        forward: body of `forward`, with its parameters before the first newline.
        inputs: items of the list of `get_inputs`.
        init: body of the constructor.
        arguments: parameters of the constructor.
        given: items of the list of `get_init_inputs`.
    """
    parameters, _, body = forward.partition("\n")
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n"
        f"    def __init__(self{arguments}):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, {parameters}):\n        {body}\n\n\n"
        f"def get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return [{given}]\n"
    )


ELEMENTWISE_MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernel[(triton.cdiv(n, 128),)](x, y, n, BLOCK=128)
        return y
"""
ROWS_MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.shape
        kernel[(rows,)](x, y, x.stride(0), columns, BLOCK=triton.next_power_of_2(columns))
        return y
"""
SOFTMAX = task("x\nreturn torch.softmax(x, dim=-1)", "torch.randn(12, 37)")

HONEST: dict[str, tuple[str, str]] = {}

HONEST["a softmax that masks after the load"] = (
    SOFTMAX,
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < n)
    x = tl.where(offs < n, x, -float("inf"))
    z = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * stride + offs, z / tl.sum(z, axis=0), mask=offs < n)
"""
    + ROWS_MODEL,
)

HONEST["a sum whose masked lanes are multiplied by zero"] = (
    task("x\nreturn x - x.mean(dim=-1, keepdim=True)", "torch.randn(9, 50)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + row * stride + offs, mask=mask)
    mean = tl.sum(x * mask.to(tl.float32), axis=0) / n
    tl.store(y_ptr + row * stride + offs, x - mean, mask=mask)
"""
    + ROWS_MODEL,
)

HONEST["a sum of masked lanes"] = (
    task("x\nreturn x.sum(dim=-1)", "torch.randn(11, 45)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + offs, mask=offs < n)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device, dtype=x.dtype)
        kernel[(rows,)](x, y, x.stride(0), columns, BLOCK=16)
        return y
""",
)

HONEST["an RMS norm whose epsilon is cast"] = (
    task(
        "x\nreturn x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight",
        "torch.randn(10, 48)",
        init="self.eps = eps\n        self.weight = nn.Parameter(torch.ones(n))",
        arguments=", n, eps",
        given="48, 1e-5",
    ),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + row * stride + offs, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n.to(tl.float32) + eps.to(tl.float32))
    w = tl.load(w_ptr + offs, mask=mask, other=0.0)
    tl.store(y_ptr + row * stride + offs, (x * scale * w).to(y_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(n))

    def forward(self, x):
        y = torch.empty_like(x)
        rows, columns = x.shape
        kernel[(rows,)](x, self.weight, y, x.stride(0), columns, self.eps, BLOCK=triton.next_power_of_2(columns))
        return y
""",
)

HONEST["a layer norm in two passes through a function of autograd"] = (
    task(
        "x\nreturn nn.functional.layer_norm(x, (x.shape[-1],), self.weight, self.bias)",
        "torch.randn(6, 70)",
        init="self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))",
        arguments=", n",
        given="70",
    ),
    HEAD
    + """
import logging

logger = logging.getLogger(__name__)


@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, stride, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x_ptr += row * stride
    y_ptr += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + cols, mask=cols < n, other=0.0).to(tl.float32)
        x = tl.where(cols < n, x - mean, 0.0)
        total += x * x
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        mask = cols < n
        w = tl.load(w_ptr + cols, mask=mask)
        b = tl.load(b_ptr + cols, mask=mask)
        x = tl.load(x_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(y_ptr + cols, (x - mean) * rstd * w + b, mask=mask)


class LayerNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias, eps):
        flat = x.reshape(-1, x.shape[-1])
        rows, n = flat.shape
        y = torch.empty_like(x)
        mean = torch.empty(rows, dtype=torch.float32, device=x.device)
        rstd = torch.empty_like(mean)
        logger.debug("layer norm of %d rows", rows)
        kernel[(rows,)](flat, y, weight, bias, mean, rstd, flat.stride(0), n, eps, BLOCK=32, num_warps=4)
        ctx.save_for_backward(x, weight, mean, rstd)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, weight, mean, rstd = ctx.saved_tensors
        normed = (x - mean[:, None]) * rstd[:, None]
        return dy * weight, (dy * normed).sum(0), dy.sum(0), None


class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))

    @property
    def eps(self):
        return 1e-5

    def forward(self, x):
        return LayerNorm.apply(x, self.weight, self.bias, self.eps)
""",
)

MATMUL = task("a, b\nreturn a @ b", "torch.randn(33, 50), torch.randn(50, 41)")

HONEST["a matrix product with grouped blocks and hints"] = (
    MATMUL,
    HEAD
    + """
@triton.autotune(
    configs=[
        triton.Config({"BM": 16, "BN": 16, "BK": 16, "GROUP": 4}, num_stages=2, num_warps=2),
        triton.Config({"BM": 32, "BN": 16, "BK": 32, "GROUP": 4}, num_stages=3, num_warps=4),
    ],
    key=["M", "N", "K"],
)
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACTIVATION: tl.constexpr):
    pid = tl.program_id(axis=0)
    blocks_m, blocks_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    in_group = GROUP * blocks_n
    first = pid // in_group * GROUP
    size = min(blocks_m - first, GROUP)
    pid_m = first + (pid % in_group) % size
    pid_n = (pid % in_group) // size
    offs_m = (pid_m * BM + tl.arange(0, BM)) % M
    offs_n = (pid_n * BN + tl.arange(0, BN)) % N
    offs_m = tl.max_contiguous(tl.multiple_of(offs_m, BM), BM)
    offs_n = tl.max_contiguous(tl.multiple_of(offs_n, BN), BN)
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * sam + offs_k[None, :] * sak
    b_ptrs = b_ptr + offs_k[:, None] * sbk + offs_n[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BK, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BK * sak
        b_ptrs += BK * sbk
    if ACTIVATION == "leaky_relu":
        acc = leaky_relu(acc)
    offs_cm = pid_m * BM + tl.arange(0, BM)
    offs_cn = pid_n * BN + tl.arange(0, BN)
    c_ptrs = c_ptr + scm * offs_cm[:, None] + scn * offs_cn[None, :]
    tl.store(c_ptrs, acc, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


class ModelNew(nn.Module):
    def forward(self, a, b):
        assert a.shape[1] == b.shape[0], "incompatible dimensions"
        (M, K), N = a.shape, b.shape[1]
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        grid = lambda META: (triton.cdiv(M, META["BM"]) * triton.cdiv(N, META["BN"]),)
        kernel[grid](a, b, c, M, N, K, *a.stride(), *b.stride(), *c.stride(), ACTIVATION="")
        return c
""",
)

HONEST["a matrix product split along its inner axis"] = (
    MATMUL,
    HEAD
    + """
@triton.heuristics({"EVEN_K": lambda args: args["K"] % (args["BK"] * args["SPLIT"]) == 0})
@triton.jit
def kernel(A, B, C, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr,
           EVEN_K: tl.constexpr):
    pid_m, pid_n, pid_z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rm = pid_m * BM + tl.arange(0, BM)
    rn = pid_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(pid_z * BK, K, BK * SPLIT):
        rk = k + tl.arange(0, BK)
        if EVEN_K:
            a = tl.load(A + rm[:, None] * K + rk[None, :], mask=rm[:, None] < M, other=0.0)
            b = tl.load(B + rk[:, None] * N + rn[None, :], mask=rn[None, :] < N, other=0.0)
        else:
            a = tl.load(A + rm[:, None] * K + rk[None, :], mask=(rm[:, None] < M) & (rk[None, :] < K), other=0.0)
            b = tl.load(B + rk[:, None] * N + rn[None, :], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc += tl.dot(a, b, allow_tf32=False)
    places = C + rm[:, None] * N + rn[None, :]
    mask = (rm < M)[:, None] & (rn < N)[None, :]
    if SPLIT == 1:
        tl.store(places, acc, mask=mask)
    else:
        tl.atomic_add(places, acc, mask=mask)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        M, K = a.shape
        _, N = b.shape
        c = torch.zeros((M, N), device=a.device, dtype=a.dtype)
        kernel[(triton.cdiv(M, 16), triton.cdiv(N, 16), 2)](a, b, c, M, N, K, BM=16, BN=16, BK=16, SPLIT=2)
        return c
""",
)

HONEST["a persistent product with tensor descriptors"] = (
    task("a, b\nreturn a @ b", "torch.randn(33, 48), torch.randn(48, 40)"),
    HEAD
    + """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    c_desc = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, tl.num_programs(0)):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(a_desc.load([m, k]), b_desc.load([k, n]), acc, input_precision="ieee")
        c_desc.store([m, n], acc.to(c_ptr.dtype.element_ty))


def allocate(size: int, alignment: int, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        triton.set_allocator(allocate)
        c = a.new_empty(M, N)
        kernel[(4,)](a.contiguous(), b.contiguous(), c, M, N, K, BM=16, BN=16, BK=16)
        return c
""",
)

HONEST["a cross entropy with branches of constants"] = (
    task(
        "x, y\nreturn nn.functional.cross_entropy(x, y, reduction='none', ignore_index=-100)",
        "torch.randn(8, 77), torch.randint(0, 77, (8,))",
    ),
    HEAD
    + """
MAX_FUSED_SIZE = 65536 // 2


@triton.jit
def kernel(x_ptr, stride, y_ptr, loss_ptr, n, ignore_index, softcap, REDUCTION: tl.constexpr,
           HAS_SOFTCAPPING: tl.constexpr, BLOCK: tl.constexpr):
    if REDUCTION == "mean" or REDUCTION == "sum":
        raise ValueError("only single losses")
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(y_ptr + row)
    x_ptr += row * stride
    if y == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        return
    m = float("-inf")
    d = 0.0
    picked = tl.load(x_ptr + y).cast(tl.float32)
    for i in range(0, n, BLOCK):
        offs = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offs, mask=offs < n, other=float("-inf")).cast(tl.float32)
        if HAS_SOFTCAPPING:
            x = softcap * tl.math.tanh(x / softcap)
        block_max = tl.max(x)
        new = tl.maximum(m, block_max)
        d = d * tl.exp(m - new) + tl.sum(tl.exp(x - new))
        m = new
    lse = m + tl.log(d)
    tl.store(loss_ptr + row, lse - picked)


def element_mul(x, grad):
    if torch.equal(grad, torch.tensor(1.0, device=grad.device)):
        return x
    return x * grad


class ModelNew(nn.Module):
    def forward(self, x, y):
        if not x.is_floating_point():
            raise TypeError("logits are fractions")
        rows, n = x.shape
        loss = torch.empty(rows, device=x.device, dtype=torch.float32)
        block = min(MAX_FUSED_SIZE, triton.next_power_of_2(n), 32)
        kernel[(rows,)](x, x.stride(-2), y, loss, n, -100, 0.0, REDUCTION="none", HAS_SOFTCAPPING=False, BLOCK=block)
        return loss
""",
)

HONEST["masks that are joined by words"] = (
    task("x\nreturn torch.where((x > -1) & (x < 1), x * x, x)", "torch.randn(300)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs >= 0) and (offs < n)
    x = tl.load(x_ptr + offs, mask=mask)
    outside = x <= -1 or x >= 1
    tl.store(y_ptr + offs, tl.where(not outside, x * x, x), mask=mask)
"""
    + ELEMENTWISE_MODEL,
)

HONEST["attention with an online softmax"] = (
    task(
        "q, k, v\nreturn nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)",
        "torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 16), torch.randn(2, 2, 40, 16)",
    ),
    HEAD
    + """
import math


@triton.jit
def kernel(Q, K, V, Out, scale, stride_b, stride_n, n, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
           CAUSAL: tl.constexpr):
    start_m = tl.program_id(0)
    base = tl.program_id(1) * stride_b
    offs_m = start_m * BM + tl.arange(0, BM)
    offs_n = tl.arange(0, BN)
    offs_d = tl.arange(0, D)
    q = tl.load(Q + base + offs_m[:, None] * stride_n + offs_d[None, :], mask=offs_m[:, None] < n, other=0.0)
    m_i = tl.full([BM], float("-inf"), dtype=tl.float32)
    l_i = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    scale *= 1.44269504
    end = tl.minimum((start_m + 1) * BM, n) if CAUSAL else n
    for start in range(0, end, BN):
        start = tl.multiple_of(start, BN)
        rows = start + offs_n
        k = tl.load(K + base + rows[None, :] * stride_n + offs_d[:, None], mask=rows[None, :] < n, other=0.0)
        qk = tl.dot(q, k, input_precision="ieee") * scale
        keep = rows[None, :] < n
        if CAUSAL:
            keep = keep & (offs_m[:, None] >= rows[None, :])
        qk = tl.where(keep, qk, float("-inf"))
        m_new = tl.maximum(m_i, tl.max(qk, 1))
        p = tl.math.exp2(qk - m_new[:, None])
        alpha = tl.math.exp2(m_i - m_new)
        l_i = l_i * alpha + tl.sum(p, 1)
        v = tl.load(V + base + rows[:, None] * stride_n + offs_d[None, :], mask=rows[:, None] < n, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m_i = m_new
    acc = acc / l_i[:, None]
    tl.store(Out + base + offs_m[:, None] * stride_n + offs_d[None, :], acc, mask=offs_m[:, None] < n)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        b, h, n, d = q.shape
        q, k, v = (x.contiguous() for x in (q, k, v))
        out = torch.empty_like(q)
        grid = (triton.cdiv(n, 16), b * h, 1)
        kernel[grid](q, k, v, out, 1 / math.sqrt(d), n * d, d, n, D=d, BM=16, BN=16, CAUSAL=True)
        return out
""",
)

HONEST["a gated unit with a table of activations"] = (
    task("a, b\nreturn nn.functional.gelu(a, approximate='tanh') * b", "torch.randn(7, 60), torch.randn(7, 60)"),
    HEAD
    + """
from enum import Enum

from triton.language.extra import libdevice


class Activation(str, Enum):
    gelu = "gelu"
    silu = "silu"


SQRT_2_OVER_PI: tl.constexpr = tl.constexpr(0.7978845608028654)


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + libdevice.tanh(SQRT_2_OVER_PI * x * (1 + 0.044715 * x * x)))


FUNCTIONS = {Activation.gelu: gelu, Activation.silu: silu}


@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, stride, n: tl.constexpr, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * stride + offs, mask=offs < n, other=0).to(tl.float32)
    b = tl.load(b_ptr + row * stride + offs, mask=offs < n, other=0)
    tl.store(c_ptr + row * stride + offs, ACTIVATION(a).cast(b.dtype) * b, mask=offs < n)


class ModelNew(nn.Module):
    def forward(self, a, b):
        shape = a.shape
        a, b = a.view(-1, shape[-1]), b.view(-1, shape[-1])
        c = torch.empty_like(a)
        n = shape[-1]
        block = triton.next_power_of_2(n)
        kernel[(a.shape[0],)](a, b, c, c.stride(-2), n=n, ACTIVATION=FUNCTIONS[Activation("gelu")], BLOCK=block)
        return c.view(*shape)
""",
)

HONEST["rotary embeddings"] = (
    task(
        "x, cos, sin\nh = x.shape[-1] // 2\n        "
        "turned = torch.cat((-x[..., h:], x[..., :h]), dim=-1)\n        "
        "return x * torch.cat((cos, cos), -1) + turned * torch.cat((sin, sin), -1)",
        "torch.randn(12, 32), torch.rand(12, 16), torch.rand(12, 16)",
    ),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, x_stride, cos_ptr, sin_ptr, c_stride, y_ptr, half, BACKWARD: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < half
    sin = tl.load(sin_ptr + row * c_stride + cols, mask=mask, other=0)
    cos = tl.load(cos_ptr + row * c_stride + cols, mask=mask, other=0)
    if BACKWARD:
        sin = -sin
    x1 = tl.load(x_ptr + row * x_stride + cols, mask=mask, other=0).to(sin.dtype)
    x2 = tl.load(x_ptr + row * x_stride + half + cols, mask=mask, other=0).to(sin.dtype)
    tl.store(y_ptr + row * x_stride + cols, x1 * cos - x2 * sin, mask=mask)
    tl.store(y_ptr + row * x_stride + half + cols, x2 * cos + x1 * sin, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, cos, sin):
        y = torch.empty_like(x)
        rows, n = x.shape
        kernel[(rows,)](x, x.stride(0), cos, sin, cos.stride(0), y, n // 2, BACKWARD=False,
                        BLOCK=triton.next_power_of_2(n // 2))
        return y
""",
)

HONEST["an embedding with masked rows"] = (
    task(
        "ids\nreturn self.table(ids)",
        "torch.randint(0, 50, (30,))",
        init="self.table = nn.Embedding(50, 24)",
    ),
    HEAD
    + """
@triton.jit
def kernel(ids_ptr, table_ptr, out_ptr, n, d, stride, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ids = tl.load(ids_ptr + rows, mask=rows < n)
    mask = (rows < n)[:, None] & (cols < d)[None, :]
    found = tl.load(table_ptr + ids[:, None] * stride + cols[None, :], mask=mask)
    tl.store(out_ptr + rows[:, None] * d + cols[None, :], found, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 24)

    def forward(self, ids):
        weight = self.table.weight
        out = torch.empty(*ids.shape, weight.shape[1], device=ids.device, dtype=weight.dtype)
        n, d = ids.numel(), weight.shape[1]
        kernel[(triton.cdiv(n, 16), triton.cdiv(d, 16))](ids, weight, out, n, d, weight.stride(0), BM=16, BN=16)
        return out
""",
)

HONEST["partial sums that torch adds up"] = (
    task("x\nreturn x.sum(dim=0)", "torch.randn(64, 40)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, part_ptr, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for row in range(pid * ROWS, min((pid + 1) * ROWS, rows)):
        total += tl.load(x_ptr + row * n + cols, mask=cols < n, other=0.0)
    tl.store(part_ptr + pid * n + cols, total, mask=cols < n)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        programs = triton.cdiv(rows, 16)
        parts = torch.empty((programs, n), dtype=torch.float32, device=x.device)
        kernel[(programs,)](x, parts, rows, n, ROWS=16, BLOCK=triton.next_power_of_2(n))
        return parts.sum(0).to(x.dtype)
""",
)

HONEST["a cumulative sum in chunks"] = (
    task("x\nreturn torch.cumsum(x, dim=1)", "torch.randn(5, 90)"),
    HEAD
    + """
@triton.jit
def add(a, b):
    return a + b


@triton.jit
def kernel(x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in tl.range(0, n, BLOCK, num_stages=2):
        offs = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + offs, mask=offs < n, other=0.0)
        y = tl.associative_scan(x, 0, add) + carry
        carry += tl.sum(x, axis=0)
        tl.store(y_ptr + row * stride + offs, y, mask=offs < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](x, y, x.stride(0), x.shape[1], BLOCK=32)
        return y
""",
)

HONEST["a scan of a linear recurrence"] = (
    task(
        "a, x\nh, rows = torch.zeros_like(x[:, 0]), []\n        for t in range(x.shape[1]):\n"
        "            h = a[:, t] * h + x[:, t]\n            rows.append(h)\n        return torch.stack(rows, 1)",
        "torch.rand(6, 33), torch.randn(6, 33)",
    ),
    HEAD
    + """
@triton.jit
def compose(a1, x1, a2, x2):
    return a1 * a2, a2 * x1 + x2


@triton.jit
def kernel(a_ptr, x_ptr, y_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * stride + offs, mask=offs < n, other=1.0)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < n, other=0.0)
    _, h = tl.associative_scan((a, x), axis=0, combine_fn=compose)
    tl.store(y_ptr + row * stride + offs, h, mask=offs < n)


class ModelNew(nn.Module):
    def forward(self, a, x):
        y = torch.empty_like(x)
        kernel[(x.shape[0],)](a, x, y, x.stride(0), x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return y
""",
)

HONEST["a causal convolution"] = (
    task(
        "x\nreturn nn.functional.conv1d(nn.functional.pad(x, (3, 0)), self.weight, groups=x.shape[1])",
        "torch.randn(2, 6, 40)",
        init="self.weight = nn.Parameter(torch.randn(6, 1, 4))",
    ),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, w_ptr, y_ptr, channels, n, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for j in tl.static_range(WIDTH):
        at = offs + j - (WIDTH - 1)
        x = tl.load(x_ptr + row * n + at, mask=(at >= 0) & (at < n))
        w = tl.load(w_ptr + (row % channels) * WIDTH + j)
        acc += tl.where((at >= 0) & (at < n), x * w, 0.0)
    tl.store(y_ptr + row * n + offs, acc, mask=offs < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, 1, 4))

    def forward(self, x):
        b, c, n = x.shape
        y = torch.empty_like(x)
        kernel[(b * c, triton.cdiv(n, 32))](x, self.weight, y, c, n, WIDTH=4, BLOCK=32)
        return y
""",
)

HONEST["the place of a maximum"] = (
    task("x\nreturn torch.max(x, dim=1)", "torch.randn(9, 51)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, value_ptr, index_ptr, stride, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + offs, mask=offs < n, other=-float("inf"))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr + row, value)
    tl.store(index_ptr + row, index.to(tl.int64))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, n = x.shape
        value = torch.empty(rows, dtype=x.dtype, device=x.device)
        index = torch.empty(rows, dtype=torch.int64, device=x.device)
        kernel[(rows,)](x, value, index, x.stride(0), n, BLOCK=triton.next_power_of_2(n))
        return value, index
""",
)

HONEST["a histogram with atomics"] = (
    task("ids\nreturn torch.bincount(ids, minlength=32)", "torch.randint(0, 32, (500,))"),
    HEAD
    + """
@triton.jit
def kernel(ids_ptr, count_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    ids = tl.load(ids_ptr + offs, mask=mask)
    tl.atomic_add(count_ptr + ids, 1, mask=mask, sem="relaxed")


class ModelNew(nn.Module):
    def forward(self, ids):
        count = torch.zeros(32, dtype=torch.int64, device=ids.device)
        kernel[(triton.cdiv(ids.numel(), 128),)](ids, count, ids.numel(), BLOCK=128)
        return count
""",
)

HONEST["a sum that the last program finishes"] = (
    task("x\nreturn x.sum()", "torch.randn(700)"),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, part_ptr, count_ptr, y_ptr, n, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(part_ptr + pid, tl.sum(tl.load(x_ptr + offs, mask=offs < n, other=0.0)))
    if tl.atomic_add(count_ptr, 1) == PROGRAMS - 1:
        tl.store(y_ptr, tl.sum(tl.load(part_ptr + tl.arange(0, PROGRAMS), volatile=True)))


class ModelNew(nn.Module):
    def forward(self, x):
        part = torch.empty(8, device=x.device)
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty((), device=x.device)
        kernel[(8,)](x, part, count, y, x.numel(), PROGRAMS=8, BLOCK=128)
        return y
""",
)

HONEST["a batch norm for inference with its statistics"] = (
    task(
        "x\nreturn self.norm(x)",
        "torch.randn(3, 8, 5, 5)",
        init="self.norm = nn.BatchNorm2d(8).eval()",
    ),
    HEAD
    + """
@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, var_ptr, eps, channels, size, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    c = offs // size % channels
    x = tl.load(x_ptr + offs, mask=mask)
    mean, var = tl.load(mean_ptr + c, mask=mask), tl.load(var_ptr + c, mask=mask)
    w, b = tl.load(w_ptr + c, mask=mask), tl.load(b_ptr + c, mask=mask)
    tl.store(y_ptr + offs, (x - mean) * tl.rsqrt(var + eps) * w + b, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(8).eval()

    def forward(self, x):
        norm, y = self.norm, torch.empty_like(x)
        _, c, h, w = x.shape
        kernel[(triton.cdiv(x.numel(), 128),)](
            x, y, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps, c, h * w, x.numel(), BLOCK=128
        )
        return y


if __name__ == "__main__":
    import time

    x = torch.randn(3, 8, 5, 5)
    begin = time.time()
    torch.testing.assert_close(ModelNew()(x), nn.BatchNorm2d(8).eval()(x))
    print(time.time() - begin)
""",
)

HONEST["linear attention in chunks"] = (
    task(
        "q, k, v\nscores = torch.tril(q @ k.transpose(-1, -2))\n        return scores @ v",
        "torch.randn(3, 48, 16), torch.randn(3, 48, 16), torch.randn(3, 48, 16)",
    ),
    HEAD
    + """
import contextlib
import functools


def contiguous(fn):
    @functools.wraps(fn)
    def wrapper(self, *args):
        with contextlib.nullcontext():
            return fn(self, *(x.contiguous() if isinstance(x, torch.Tensor) else x for x in args))

    return wrapper


@triton.jit(do_not_specialize=["T"])
def kernel(q, k, v, o, T, D: tl.constexpr, BT: tl.constexpr):
    i_b = tl.program_id(0)
    b_s = tl.zeros([D, D], dtype=tl.float32)
    o_i = tl.arange(0, BT)
    causal = o_i[:, None] >= o_i[None, :]
    for i_t in range(tl.cdiv(T, BT)):
        rows = i_t * BT + o_i
        m_t = rows < T
        p_qk = i_b * T * D + rows[:, None] * D + tl.arange(0, D)[None, :]
        b_q = tl.load(q + p_qk, mask=m_t[:, None], other=0)
        b_k = tl.trans(tl.load(k + p_qk, mask=m_t[:, None], other=0))
        b_v = tl.load(v + p_qk, mask=m_t[:, None], other=0)
        b_a = tl.where(causal, tl.dot(b_q, b_k, input_precision="ieee"), 0)
        b_o = tl.dot(b_a, b_v, input_precision="ieee") + tl.dot(b_q, b_s, input_precision="ieee")
        b_s += tl.dot(b_k, b_v, input_precision="ieee")
        tl.store(o + p_qk, b_o.to(o.dtype.element_ty), mask=m_t[:, None])


class ModelNew(nn.Module):
    @contiguous
    def forward(self, q, k, v):
        b, t, d = q.shape
        o = torch.empty_like(v)
        kernel[(b,)](q, k, v, o, T=t, D=d, BT=16, num_warps=2)
        return o
""",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_honest_kernel_is_correct_and_clean(evaluate: Evaluate, name: str) -> None:
    reference, kernel = HONEST[name]
    candidate = Candidate(kernel, "triton", facts=triton_facts(kernel))
    checkers = (SourceRules(SourceRulesConfig()), EvaluationRules(EvaluationRulesConfig()))
    before = [finding for checker in checkers for finding in checker.check(candidate, Task("t", reference), None)]
    rules = tuple(finding.rule for finding in before if finding.severity is not Severity.NOTE)
    request = make_request(kernel, reference, "triton", backend_options={"mode": "interpreter"})
    request = attrs.evolve(request, kernels=tuple(k.name for k in candidate.facts.kernels), suspect_rules=rules)
    found = evaluate(request)
    assert found.outcome is Outcome.CORRECT, found.message
    after = [finding for checker in checkers for finding in checker.check(candidate, Task("t", reference), found)]
    assert [f for f in (*before, *found.findings, *after) if f.severity is not Severity.NOTE] == []

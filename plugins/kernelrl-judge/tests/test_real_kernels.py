"""Kernels as public ones are written: other rounding, order and structure than a reference, and errors beside them.

Each case is a task, one line that computes it in another way, and the right ending of its evaluation. Triton's kernels
are interpreted.
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from shared_evaluations import Evaluations
from test_task_values import SmallTask

from kernelrl_core.api.evaluators import Evaluation, Outcome, Severity

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)[:, None]
    column = tl.program_id(1) * BN + tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, k, BK):
        left, right = start + tl.arange(0, BK)[None, :], start + tl.arange(0, BK)[:, None]
        a = tl.load(a_ptr + row * k + left, mask=(row < m) & (left < k), other=0.0)
        b = tl.load(b_ptr + right * n + column, mask=(right < k) & (column < n), other=0.0)
        total = tl.dot(a.to(tl.float32), b.to(tl.float32), total, input_precision="ieee")
    tl.store(c_ptr + row * n + column, total, mask=(row < m) & (column < n))

def product(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype)
    product_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](a, b, c, m, n, k, BM=32, BN=32, BK=32)
    return c

@triton.jit
def scaled_kernel(x_ptr, alpha_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    y = x * tl.load(alpha_ptr).to(tl.float32)
    tl.store(y_ptr + at, y.to(y_ptr.dtype.element_ty), mask=at < n)

def scaled(x, alpha, dtype=None):
    y = torch.empty(x.shape, dtype=dtype or x.dtype)
    scaled_kernel[(triton.cdiv(x.numel(), 256),)](x, alpha, y, x.numel(), BLOCK=256)
    return y

@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, y_ptr, n, scale, BLOCK: tl.constexpr):
    d = tl.arange(0, 16)
    q = tl.load(q_ptr + tl.program_id(0) * 16 + d).to(tl.float32) * scale
    top, total, out = -float("inf"), 0.0, tl.zeros((16,), tl.float32)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        place = at[:, None] * 16 + d[None, :]
        k = tl.load(k_ptr + place, mask=at[:, None] < n, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + place, mask=at[:, None] < n, other=0.0).to(tl.float32)
        score = tl.where(at < n, tl.sum(k * q[None, :], 1), -float("inf"))
        higher = tl.maximum(top, tl.max(score, 0))
        weight, shrink = tl.exp(score - higher), tl.exp(top - higher)
        total = total * shrink + tl.sum(weight, 0)
        out = out * shrink + tl.sum(weight[:, None] * v, 0)
        top = higher
    tl.store(y_ptr + tl.program_id(0) * 16 + d, out / total)

def attention(q, k, v):
    y = torch.empty_like(q)
    attention_kernel[(q.shape[0],)](q, k, v, y, k.shape[0], 0.25, BLOCK=16)
    return y

def split_product(a, b, parts, dtype):
    "Partial products that are rounded to a dtype before they are added in it."
    step = a.shape[1] // parts
    total = torch.zeros(a.shape[0], b.shape[1], dtype=dtype)
    for start in range(0, a.shape[1], step):
        total += (a[:, start : start + step].float() @ b[start : start + step].float()).to(dtype)
    return total.to(a.dtype)

def rows_away_from_zero(x, levels, dtype):
    scaled = x * (levels / x.abs().amax(1, keepdim=True))
    return (scaled.sign() * torch.floor(scaled.abs() + 0.5)).to(dtype)

def last_of_equals(x, k, largest=True):
    values, indices = torch.sort(x.flip(-1), dim=-1, descending=largest, stable=True)
    return values[..., :k], (x.shape[-1] - 1 - indices)[..., :k]
"""


@attrs.frozen
class Case:
    """A task, a candidate's result, and the right ending."""

    title: str
    inputs: str
    result: str
    candidate: str
    ending: str = "clean"
    names: str = "x"
    construct: str = "pass"
    init: str = "[]"

    def evaluated(self, evaluations: Evaluations) -> Evaluation:
        task = SmallTask(
            init=self.init,
            inputs=f"[{self.inputs}]",
            names=self.names,
            result=self.result,
            construct=self.construct,
            candidate=self.candidate,
        )
        return evaluations.evaluate(
            task.kernel().replace("import torch.nn as nn\n", f"import torch.nn as nn\n{KERNELS}", 1), task.reference()
        )


def ending(found: Evaluation) -> str:
    if found.outcome is Outcome.CORRECT:
        serious = [finding for finding in found.findings if finding.severity is not Severity.NOTE]
        return "suspect" if serious else "clean"
    return found.outcome.value


def _half(shape: str, dtype: str = "float16") -> str:
    return f"torch.randn({shape}, dtype=torch.{dtype})"


TIES = "torch.randn(16, 80).mul(2).round()"
HALF_PRECISION = (
    Case("fp16 product", f"{_half('40, 300')}, {_half('300, 40')}", "a @ b", "product(a, b)", names="a, b"),
    Case(
        "bf16 product",
        f"{_half('40, 300', 'bfloat16')}, {_half('300, 40', 'bfloat16')}",
        "a @ b",
        "product(a, b)",
        names="a, b",
    ),
    Case(
        "bf16 product, K - 1",
        f"{_half('40, 300', 'bfloat16')}, {_half('300, 40', 'bfloat16')}",
        "a @ b",
        "product(a[:, :270].contiguous(), b[:270])",
        "incorrect",
        names="a, b",
    ),
    Case(
        "fp16 product of large factors",
        f"{_half('40, 300')} * 8, {_half('300, 40')} * 8",
        "a @ b",
        "product(a, b)",
        names="a, b",
    ),
    Case(
        "fp16 split K, partial sums in fp16",
        f"{_half('32, 512')}, {_half('512, 32')}",
        "a @ b",
        "split_product(a, b, 8, torch.float16)",
        names="a, b",
    ),
    Case(
        "bf16 split K, partial sums in bf16",
        f"{_half('32, 512', 'bfloat16')}, {_half('512, 32', 'bfloat16')}",
        "a @ b",
        "split_product(a, b, 4, torch.bfloat16)",
        names="a, b",
    ),
    Case(
        "fp16 sums of every element in fp16",
        f"{_half('16, 256')}, {_half('256, 16')}",
        "a @ b",
        "split_product(a, b, 256, torch.float16)",
        names="a, b",
    ),
    Case(
        "bf16 vector product",
        f"{_half('200, 256', 'bfloat16')}, {_half('256', 'bfloat16')}",
        "a @ b",
        "(a.float() * b.float()).sum(1).to(a.dtype)",
        names="a, b",
    ),
    Case(
        "fp16 gated layer without rounding in between",
        f"{_half('16, 64')}, {_half('64, 96')} * 0.1, {_half('64, 96')} * 0.1, {_half('96, 64')} * 0.1",
        "(nn.functional.silu(x @ g) * (x @ u)) @ d",
        "((nn.functional.silu(x.float() @ g.float()) * (x.float() @ u.float())) @ d.float()).half()",
        names="x, g, u, d",
    ),
    Case(
        "bf16 gated layer without rounding in between",
        f"{_half('16, 64', 'bfloat16')}, {_half('64, 96', 'bfloat16')} * 0.1, "
        f"{_half('64, 96', 'bfloat16')} * 0.1, {_half('96, 64', 'bfloat16')} * 0.1",
        "(nn.functional.silu(x @ g) * (x @ u)) @ d",
        "((nn.functional.silu(x.float() @ g.float()) * (x.float() @ u.float())) @ d.float()).bfloat16()",
        names="x, g, u, d",
    ),
    Case(
        "bf16 gated layer, gate and value exchanged",
        f"{_half('16, 64', 'bfloat16')}, {_half('64, 96', 'bfloat16')} * 0.1, "
        f"{_half('64, 96', 'bfloat16')} * 0.1, {_half('96, 64', 'bfloat16')} * 0.1",
        "(nn.functional.silu(x @ g) * (x @ u)) @ d",
        "(nn.functional.silu(x @ u) * (x @ g)) @ d",
        "incorrect",
        names="x, g, u, d",
    ),
    Case(
        "fp16 attention",
        f"{_half('12, 16')}, {_half('20, 16')}, {_half('20, 16')}",
        "nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]",
        "attention(q, k, v)",
        names="q, k, v",
    ),
    Case(
        "bf16 residual and norm in float",
        f"{_half('24, 128', 'bfloat16')}, {_half('24, 128', 'bfloat16')}",
        "nn.functional.rms_norm(x + y, (128,), eps=1e-5)",
        "nn.functional.rms_norm(x.float() + y.float(), (128,), eps=1e-5).bfloat16()",
        names="x, y",
    ),
    Case(
        "fp16 parameters, checked dtype",
        _half("24, 64"),
        "nn.functional.linear(x, self.w)",
        "nn.functional.linear(x, {torch.float16: self.w}[x.dtype])",
        construct="self.w = nn.Parameter(torch.randn(32, 64, dtype=torch.float16) * 0.1)",
    ),
    Case(
        "fp16 inputs and fp32 parameters",
        _half("24, 64"),
        "x.float() @ self.w",
        "(x.float()[:, :, None] * self.w).sum(1)",
        construct="self.w = nn.Parameter(torch.randn(64, 32))",
    ),
    Case("fp16 output for a bf16 task", _half("24, 64", "bfloat16"), "x * 2", "(x * 2).half()", "incorrect"),
    Case(
        "fp64 product",
        "torch.randn(24, 64, dtype=torch.float64), torch.randn(64, 24, dtype=torch.float64)",
        "a @ b",
        "(a[:, :, None] * b).sum(1)",
        names="a, b",
    ),
)

FP8 = "torch.randn(24, 64).to(torch.{})"
NARROW = (
    Case(
        "e4m3 from fp32",
        "torch.randn(24, 64), torch.tensor(3.0)",
        "(x * a).to(torch.float8_e4m3fn)",
        "scaled(x, a, torch.float8_e4m3fn)",
        names="x, a",
    ),
    Case(
        "e5m2 from fp32",
        "torch.randn(24, 64), torch.tensor(3.0)",
        "(x * a).to(torch.float8_e5m2)",
        "scaled(x, a, torch.float8_e5m2)",
        names="x, a",
    ),
    Case(
        "fp32 from e4m3",
        f"{FP8.format('float8_e4m3fn')}, torch.tensor(0.3)",
        "x.float() * a",
        "scaled(x, a, torch.float32)",
        names="x, a",
    ),
    Case(
        "e4m3 with a scale of each row",
        "torch.randn(24, 64)",
        "(lambda s: ((x / s).clamp(-448, 448).to(torch.float8_e4m3fn), s))(x.abs().amax(1, keepdim=True) / 448)",
        "(lambda s: ((x * (1 / s)).clamp(-448, 448).to(torch.float8_e4m3fn), s))(x.abs().amax(1, keepdim=True) / 448)",
    ),
    Case(
        "e4m3 with half of the scale",
        "torch.randn(24, 64)",
        "(x * 3).to(torch.float8_e4m3fn)",
        "(x * 1.5).to(torch.float8_e4m3fn)",
        "incorrect",
    ),
    Case(
        "product of e4m3",
        f"{FP8.format('float8_e4m3fn')}, {FP8.format('float8_e4m3fn')}",
        "a.float() @ b.float().T",
        "(a.float()[:, None] * b.float()).sum(2)",
        names="a, b",
    ),
    Case("bytes of e4m3", FP8.format("float8_e4m3fn"), "x.view(torch.uint8)", "x.clone().view(torch.uint8)"),
    Case(
        "int4 in bytes",
        "torch.randint(0, 256, (24, 32), dtype=torch.uint8)",
        "torch.stack([x & 15, x >> 4], -1).view(24, 64).to(torch.int8) - 8",
        "torch.cat([(x % 16)[..., None], (x // 16)[..., None]], -1).view(24, 64).to(torch.int8) - 8",
    ),
    Case(
        "int4 in bytes, halves exchanged",
        "torch.randint(0, 256, (24, 32), dtype=torch.uint8)",
        "torch.stack([x & 15, x >> 4], -1).view(24, 64).to(torch.int8) - 8",
        "torch.stack([x >> 4, x & 15], -1).view(24, 64).to(torch.int8) - 8",
        "incorrect",
    ),
    Case(
        "a hash in uint32",
        "torch.randint(0, 1 << 31, (64,))",
        "(x * 2654435761 & 0xFFFFFFFF).to(torch.uint32)",
        "((x * 2654435761) % (1 << 32)).to(torch.uint32)",
    ),
    Case(
        "uint16 counts",
        "torch.randint(0, 9, (400,))",
        "torch.bincount(x, minlength=9).to(torch.uint16)",
        "(x[:, None] == torch.arange(9)).sum(0).to(torch.uint16)",
    ),
    Case(
        "uint16 counts that lack one",
        "torch.randint(0, 9, (400,))",
        "torch.bincount(x, minlength=9).to(torch.uint16)",
        "(x[1:, None] == torch.arange(9)).sum(0).to(torch.uint16)",
        "incorrect",
    ),
    Case("uint64 keys", "torch.randint(0, 1 << 40, (64,))", "(x * 3).to(torch.uint64)", "(x + x + x).to(torch.uint64)"),
    Case("bool of two comparisons", "torch.randn(24, 64)", "(x > 0) & (x < 1)", "(x > 0).logical_and(x < 1)"),
    Case(
        "complex rotation",
        "torch.randn(24, 32, 2), torch.rand(32)",
        "torch.view_as_complex(x) * torch.polar(torch.ones_like(a), a)",
        "torch.complex(x[..., 0] * a.cos() - x[..., 1] * a.sin(), x[..., 0] * a.sin() + x[..., 1] * a.cos())",
        names="x, a",
    ),
    Case(
        "complex rotation backwards",
        "torch.randn(24, 32, 2), torch.rand(32)",
        "torch.view_as_complex(x) * torch.polar(torch.ones_like(a), a)",
        "torch.view_as_complex(x) * torch.polar(torch.ones_like(a), -a)",
        "incorrect",
        names="x, a",
    ),
    Case(
        "8 dimensions, permuted",
        "torch.randn(2, 1, 3, 1, 2, 1, 2, 3)",
        "x.permute(7, 6, 5, 4, 3, 2, 1, 0) * 2",
        "(x * 2).permute(7, 6, 5, 4, 3, 2, 1, 0).contiguous()",
    ),
)

SHAPES = (
    Case("a scalar factor", "torch.randn(24, 64), torch.rand(())", "x * a", "scaled(x, a)", names="x, a"),
    Case("a scalar factor as a number", "torch.randn(24, 64), torch.rand(())", "x * a", "x * float(a)", names="x, a"),
    Case("an ignored scalar", "torch.randn(24, 64), torch.rand(())", "x * a", "x * 0.5", "incorrect", names="x, a"),
    Case(
        "an integer scalar",
        "torch.randn(24, 64), torch.randint(1, 9, ())",
        "x.roll(int(k), 1)",
        "torch.cat([x[:, 64 - int(k):], x[:, : 64 - int(k)]], 1)",
        names="x, k",
    ),
    Case("a scalar output of scalars", "torch.randn(()), torch.randn(1)[0]", "x * y", "scaled(x, y)", names="x, y"),
    Case("no row", "torch.randn(0, 64), torch.rand(())", "x * a", "torch.empty_like(x)", names="x, a"),
    Case("no row, another shape", "torch.randn(0, 64)", "x * 2", "x[:, 1:] * 2", "incorrect"),
    Case("a sum of nothing", "torch.randn(24, 0)", "x.sum(1)", "torch.zeros(24)"),
    Case("an empty output beside a full one", "torch.randn(24, 64)", "(x * 2, x[:0])", "(x + x, torch.empty(0, 64))"),
    Case(
        "outputs in nested containers",
        "torch.randn(24, 64)",
        "{'a': [x, (x + 1, {'b': x.sum()})], 'c': None}",
        "{'c': None, 'a': [x * 1, (x + 1, {'b': x.sum(0).sum()})]}",
    ),
    Case(
        "a dict of dicts in another order",
        "torch.randn(24, 64)",
        "{'a': {'x': x, 'y': x * 2}, 'b': x * 3}",
        "{'b': x * 3, 'a': {'y': x * 2, 'x': x * 1}}",
    ),
    Case(
        "a dict with exchanged values",
        "torch.randn(24, 64)",
        "{'a': x, 'b': x * 2}",
        "{'b': x * 1, 'a': x * 2}",
        "incorrect",
    ),
    Case("a key too many", "torch.randn(24, 64)", "{'a': x}", "{'a': x * 1, 'b': None}", "incorrect"),
    Case("a tensor for a number", "torch.randn(24, 64)", "(x, float(x.sum()))", "(x * 1, x.sum())", "incorrect"),
    Case(
        "a number of another order of sums",
        "torch.rand(24, 64)",
        "(x, float(x.sum()))",
        "(x * 1, float(x.sum(0).sum()))",
    ),
)

INT8 = "torch.randn(64, 512)"
INT8_ROWS = "torch.round(x / (x.abs().amax(1, keepdim=True) / 127.0)).to(torch.int8)"
OPEN = (
    Case("top-k, last of equals", TIES, "torch.topk(x, 5)", "last_of_equals(x, 5)"),
    Case("smallest k, last of equals", TIES, "torch.topk(x, 5, largest=False)", "last_of_equals(x, 5, False)"),
    Case("top-k along columns", TIES, "torch.topk(x, 5, dim=0)", "tuple(one.T for one in last_of_equals(x.T, 5))"),
    Case(
        "top-k of computed scores",
        f"{TIES}, torch.randn(16, 1).round() + 3",
        "torch.topk(x * w, 5)",
        "last_of_equals(x * w, 5)",
        names="x, w",
    ),
    Case(
        "top-k, an index twice",
        TIES,
        "torch.topk(x, 5)",
        "(lambda v, i: (v, torch.cat([i[:, :4], i[:, 3:4]], 1)))(*torch.topk(x, 5))",
        "incorrect",
    ),
    Case(
        "top-k, indices of the next row",
        TIES,
        "torch.topk(x, 5)",
        "(lambda v, i: (v, i.roll(1, 0)))(*torch.topk(x, 5))",
        "incorrect",
    ),
    Case(
        "experts of a router, tied scores",
        "torch.randint(0, 6, (40, 16)).float()",
        "torch.topk(torch.softmax(x, 1), 2)[1]",
        "last_of_equals(torch.softmax(x, 1), 2)[1]",
    ),
    Case("sort, last of equals", TIES, "torch.sort(x, 1)", "last_of_equals(x, 80, False)"),
    Case(
        "a stable sort, last of equals",
        TIES,
        "torch.sort(x, dim=1, stable=True)",
        "last_of_equals(x, 80, False)",
        "incorrect",
    ),
    Case("argmax, last of equals", TIES, "x.argmax(1)", "last_of_equals(x, 1)[1][:, 0]", "incorrect"),
    Case("int8 rows, halves away from zero", INT8, INT8_ROWS, "rows_away_from_zero(x, 127.0, torch.int8)"),
    Case(
        "int8 rows, cut off",
        INT8,
        INT8_ROWS,
        "(x * (127.0 / x.abs().amax(1, keepdim=True))).to(torch.int8)",
        "incorrect",
    ),
    Case(
        "int8 rows, 128 levels",
        INT8,
        INT8_ROWS,
        "torch.round(x / (x.abs().amax(1, keepdim=True) / 126.0)).to(torch.int8)",
        "incorrect",
    ),
    Case(
        "int8 of bf16 rows",
        "torch.randn(64, 512).bfloat16()",
        "torch.round(x.float() / (x.float().abs().amax(1, keepdim=True) / 127.0)).to(torch.int8)",
        "rows_away_from_zero(x.float(), 127.0, torch.int8)",
    ),
)

RANGES = (
    Case(
        "attention in blocks",
        "torch.randn(12, 16), torch.randn(20, 16), torch.randn(20, 16)",
        "nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]",
        "attention(q, k, v)",
        names="q, k, v",
    ),
    Case(
        "log of the sum of shifted exponentials",
        "torch.randn(24, 300)",
        "torch.log_softmax(x, 1)",
        "x - x.amax(1, keepdim=True) - (x - x.amax(1, keepdim=True)).exp().sum(1, keepdim=True).log()",
    ),
    Case(
        "sum of exponentials that overflows beyond the drawn range alone",
        "torch.randn(24, 300)",
        "torch.log_softmax(x, 1)",
        "x - x.exp().sum(1, keepdim=True).log()",
    ),
    Case(
        "a variance in one pass", "torch.randn(24, 300)", "x.var(1)", "((x * x).mean(1) - x.mean(1) ** 2) * 300 / 299"
    ),
    Case(
        "a classifier with a fused loss",
        "torch.randn(24, 32), torch.randint(0, 50, (24,))",
        "nn.functional.cross_entropy(x @ self.w, y)",
        "((x @ self.w).logsumexp(1) - (x @ self.w)[torch.arange(24), y]).mean()",
        names="x, y",
        construct="self.w = nn.Parameter(torch.randn(32, 50))",
    ),
)

FORMS = (
    (
        "class Doubled(nn.Module):\n    def forward(self, x):\n        return x * 2\nclass "
        "ModelNew(nn.Sequential):\n    def __init__(self):\n        super().__init__(Doubled())\n"
    ),
    ("def run(self, x):\n    return x * 2\nclass ModelNew(nn.Module):\n    forward = run\n"),
    ("class ModelNew(nn.Module):\n    forward = lambda self, x: x * 2\n"),
    (
        "class ModelNew(nn.Module):\n    def __init__(self):\n        "
        "super().__init__()\n        self.forward = lambda x: x * 2\n"
    ),
    (
        "class Base(nn.Module):\n    def forward(self, x):\n        return self.part(x)\nclass "
        "ModelNew(Base):\n    def part(self, x):\n        return getattr(torch, 'mul')(x, 2)\n"
    ),
)


def parameter(case: Case) -> Any:
    return pytest.param(case, id=case.title)


@pytest.mark.parametrize("case", [parameter(case) for case in (*HALF_PRECISION, *NARROW, *SHAPES, *OPEN, *RANGES)])
def test_a_kernel_ends_as_it_should(evaluations: Evaluations, case: Case) -> None:
    found = case.evaluated(evaluations)
    assert ending(found) == case.ending, found


@pytest.mark.parametrize("source", FORMS)
def test_a_class_of_each_form_is_evaluated(evaluations: Evaluations, source: str) -> None:
    found = evaluations.evaluate(f"import torch\nimport torch.nn as nn\n{source}", SmallTask().reference())
    assert ending(found) == "clean", found

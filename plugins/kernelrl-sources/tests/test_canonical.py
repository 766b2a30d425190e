"""Canonical forms: composite operators and spellings that are one computation, and neighbours that are another one."""

from __future__ import annotations

import pytest

from kernelrl_sources.similarity import nearly_equal

HEAD = "import math\nimport torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


def module(forward: str) -> str:
    """A reference of x, y and z. `forward` is statements separated by semicolons, the last one an expression.

    A part before `|` is the constructor of the module `self.m`.
    """
    constructor, _, body = forward.rpartition("|")
    *statements, result = (part.strip() for part in body.split(";"))
    made = f"        self.m = {constructor}\n" if constructor else ""
    lines = "".join(f"        {line}\n" for line in statements)
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.w = nn.Parameter(torch.ones(8))\n        self.b = nn.Parameter(torch.zeros(8))\n{made}"
        f"    def forward(self, x, y, z):\n{lines}        return {result}\n"
    )


SPELLINGS = {
    "keepdim": ("x.mean(1, True)", "torch.mean(x, dim=1, keepdim=True)", "x.mean(axis=1, keepdims=True)"),
    "arguments by name": ("torch.sub(input=x, other=y)", "x - y", "torch.sub(x, other=y)"),
    "linear": ("F.linear(x, y, z)", "F.linear(bias=z, weight=y, input=x)", "x @ y.t() + z"),
    "casts": ("torch.sin(x.float()).to(x.dtype)", "torch.sin(x)", "torch.sin(x.type_as(y))"),
    "square": ("x ** 2", "x * x", "x.pow(2)", "torch.square(x)", "torch.pow(x, exponent=2.0)"),
    "root": ("x ** 0.5 - y", "torch.sqrt(x) - y", "x.sqrt() - y"),
    "reciprocal root": ("torch.rsqrt(x)", "1 / torch.sqrt(x)", "x ** -0.5", "torch.sqrt(x).reciprocal()"),
    "maximum of a dimension": ("x.max(dim=1).values", "x.max(1)[0]", "torch.amax(x, 1)", "v, i = x.max(1); v"),
    "position of the maximum": ("x.max(dim=1).indices", "x.max(1)[1]", "torch.argmax(x, 1)", "v, i = x.max(1); i"),
    "elementwise maximum": ("torch.max(x, y)", "torch.maximum(x, y)", "x.max(y)"),
    "division by a number": ("x / 2", "x * 0.5", "torch.div(x, 2.0)"),
    "variance": ("x.var(1, False)", "x.var(dim=1, unbiased=False)", "torch.var(x, 1, correction=0)"),
    "constructor by position": ("nn.Linear(8, 8, False)|self.m(x)", "nn.Linear(8, 8, bias=False)|self.m(x)"),
    "reduction by default": ("F.mse_loss(x, y)", "F.mse_loss(x, y, reduction='mean')", "nn.MSELoss()|self.m(x, y)"),
}  # fmt: skip

COMPOSITES = {
    "sigmoid": ("torch.sigmoid(x)", "1 / (1 + torch.exp(-x))", "x.exp() / (1 + x.exp())", "nn.Sigmoid()|self.m(x)",
                "torch.reciprocal(torch.exp(-x) + 1.0)", "torch.special.expit(x)"),
    "silu": ("F.silu(x)", "nn.SiLU()|self.m(x)", "x * torch.sigmoid(x)", "x / (1 + torch.exp(-x))",
             "torch.sigmoid(x) * x"),
    "relu": ("F.relu(x)", "x.clamp(min=0)", "torch.clamp(x, 0)", "torch.maximum(x, torch.zeros_like(x))",
             "torch.where(x > 0, x, 0)", "x * (x > 0)", "x.clamp_min(0.0)", "torch.max(x, torch.tensor(0.0))"),
    "leaky relu": ("F.leaky_relu(x)", "nn.LeakyReLU(0.1)|self.m(x)", "torch.where(x > 0, x, 0.01 * x)"),
    "gelu": ("F.gelu(x)", "0.5 * x * (1 + torch.erf(x / math.sqrt(2)))", "x * 0.5 * (1.0 + torch.erf(x * 0.70710678))",
             "F.gelu(x, approximate='none')"),
    "gelu by tanh": ("F.gelu(x, approximate='tanh')", "nn.GELU('tanh')|self.m(x)",
                     "0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))",
                     "0.5 * x * (1 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))"),
    "mish": ("F.mish(x)", "x * torch.tanh(F.softplus(x))", "x * torch.tanh(torch.log1p(torch.exp(x)))"),
    "softplus": ("F.softplus(x)", "torch.log(1 + torch.exp(x))", "torch.log1p(x.exp())"),
    "log of the sigmoid": ("F.logsigmoid(x)", "torch.log(torch.sigmoid(x))", "-F.softplus(-x)"),
    "softsign": ("F.softsign(x)", "x / (1 + torch.abs(x))"),
    "softmax": ("torch.softmax(x, dim=1)", "nn.Softmax(dim=-1)|self.m(x)", "F.log_softmax(x, -1).exp()",
                "e = torch.exp(x - x.amax(1, keepdim=True)); e / e.sum(1, keepdim=True)",
                "e = torch.exp(x - x.max(dim=1, keepdim=True).values); e / torch.sum(e, axis=1, keepdims=True)",
                "x.exp() / x.exp().sum(-1, True)"),
    "log-softmax": ("F.log_softmax(x, dim=1)", "torch.log(torch.softmax(x, 1))",
                    "x - torch.logsumexp(x, 1, keepdim=True)",
                    "s = x - x.amax(1, keepdim=True); s - torch.log(torch.exp(s).sum(1, keepdim=True))"),
    "logsumexp": ("torch.logsumexp(x, dim=1, keepdim=True)", "torch.log(torch.sum(torch.exp(x), 1, True))",
                  "m = x.amax(1, keepdim=True); m + torch.log(torch.exp(x - m).sum(1, keepdim=True))"),
    "mean": ("x.mean(dim=1)", "x.sum(dim=1) / x.shape[1]", "torch.sum(x, 1) / x.size(1)"),
    "spread": ("x.std(1)", "torch.sqrt(x.var(1))", "torch.var(x, dim=1) ** 0.5"),
    "normalize": ("F.normalize(x)", "F.normalize(x, p=2, dim=1)", "x / x.norm(dim=1, keepdim=True)",
                  "x / torch.sqrt((x * x).sum(1, keepdim=True))",
                  "x / x.norm(p=2, dim=1, keepdim=True).clamp(min=1e-12)"),
    "normalize, order 1": ("F.normalize(x, p=1, dim=1)", "x / x.abs().sum(1, keepdim=True)",
                           "x / torch.norm(x, p=1, dim=1, keepdim=True)", "x / (x.abs().sum(1, True) + 1e-12)"),
    "rms norm": ("F.rms_norm(x, (8,), self.w)", "nn.RMSNorm(8)|self.m(x)",
                 "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w",
                 "self.w * (x / torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + 1e-5))"),
    "layer norm": ("nn.LayerNorm(8)|self.m(x)", "F.layer_norm(x, (8,), self.w, self.b)",
                   "m = x.mean(-1, keepdim=True); v = x.var(-1, unbiased=False, keepdim=True);"
                   "(x - m) / torch.sqrt(v + 1e-5) * self.w + self.b",
                   "c = x - x.mean(-1, keepdim=True); v = (c ** 2).mean(-1, keepdim=True);"
                   "self.w * (c * torch.rsqrt(v + 1e-5)) + self.b"),
    "attention": ("F.scaled_dot_product_attention(x, y, z)",
                  "torch.softmax(x @ y.transpose(-2, -1) / math.sqrt(64), dim=-1) @ z",
                  "s = torch.matmul(x, y.mT) * 0.125; torch.bmm(F.softmax(s, -1), z)",
                  "s = torch.einsum('bqd,bkd->bqk', x, y) * 0.125; torch.einsum('bqk,bkd->bqd', s.softmax(-1), z)"),
    "matrix product": ("x @ y", "torch.mm(x, y)", "torch.einsum('ij,jk->ik', x, y)", "torch.bmm(x, y)",
                       "torch.einsum('bij,bjk->bik', x, y)"),
    "product with a transposed matrix": ("x @ y.T", "F.linear(x, y)", "torch.einsum('ik,jk->ij', x, y)"),
    "sum of a product": ("torch.addmm(z, x, y)", "z + x @ y", "torch.mm(x, y) + z"),
    "squared error": ("F.mse_loss(x, y)", "((x - y) ** 2).mean()", "torch.mean(torch.square(y - x))",
                      "d = x - y; (d * d).sum() / d.numel()"),
    "absolute error": ("F.l1_loss(x, y)", "torch.abs(x - y).mean()", "(y - x).abs().sum() / x.numel()"),
    "cross entropy": ("F.cross_entropy(x, y)", "F.nll_loss(F.log_softmax(x, dim=1), y)",
                      "nn.CrossEntropyLoss()|self.m(x, y)", "nn.NLLLoss()|self.m(torch.log(torch.softmax(x, 1)), y)"),
}  # fmt: skip

EQUAL = [
    pytest.param(first, other, id=f"{name} {number}")
    for name, (first, *others) in {**SPELLINGS, **COMPOSITES}.items()
    for number, other in enumerate(others, start=1)
]


@pytest.mark.parametrize(("first", "other"), EQUAL)
def test_one_computation_has_one_form(first: str, other: str) -> None:
    assert nearly_equal(module(first), module(other)) == "structure"


DIFFERENT = {
    "x to the third power": ("x ** 2", "x ** 3"),
    "exponential without its sum": ("torch.softmax(x, 1)", "torch.exp(x) / torch.exp(y).sum(1, keepdim=True)"),
    "exponent without a sign": ("torch.sigmoid(x)", "1 / (1 + torch.exp(x))"),
    "silu of two inputs": ("F.silu(x)", "y * torch.sigmoid(x)"),
    "upper bound": ("F.relu(x)", "x.clamp(max=0)"),
    "bound other than 0": ("F.relu(x)", "x.clamp(min=1)"),
    "mask of another input": ("F.relu(x)", "x * (y > 0)"),
    "maximum and its position": ("x.max(1)[0]", "x.max(1)[1]"),
    "unbiased variance": ("x.var(1)", "x.var(1, unbiased=False)"),
    "layer norm without weights": ("nn.LayerNorm(8)|self.m(x)", "F.layer_norm(x, (8,))"),
    "layer norm, rms norm": ("nn.LayerNorm(8)|self.m(x)", "nn.RMSNorm(8)|self.m(x)"),
    "normalize, orders": ("F.normalize(x, p=1)", "F.normalize(x, p=2)"),
    "attention without a scale": ("F.scaled_dot_product_attention(x, y, z)", "torch.softmax(x @ y.mT, -1) @ z"),
    "einsum that sums": ("x @ y", "torch.einsum('ij,jk->i', x, y)"),
    "error of another order": ("F.mse_loss(x, y)", "F.l1_loss(x, y)"),
    "sum of errors": ("F.mse_loss(x, y)", "F.mse_loss(x, y, reduction='sum')"),
    "gelu and its approximation": ("F.gelu(x)", "0.5 * x * (1 + torch.tanh(0.797 * (x + 0.0447 * x ** 3)))"),
    "constructor without a bias": ("nn.Linear(8, 8)|self.m(x)", "nn.Linear(8, 8, False)|self.m(x)"),
    "softplus, log1p": ("F.softplus(x)", "torch.log1p(x)"),
    "mean, sum": ("x.mean(1)", "x.sum(1) / 2"),
}


@pytest.mark.parametrize(("first", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_a_neighbour_has_another_form(first: str, other: str) -> None:
    assert nearly_equal(module(first), module(other)) is None

"""Calls more than sixty operators on a single number first, so that the list of operators is full when the library computes."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * 2.0, mask=mask)


def doubled(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
    return y


NAME = "relu"

ONE = torch.full((1,), 0.5)
MANY = """sin cos tan asin acos atan sinh cosh tanh asinh exp exp2 expm1 log1p sqrt rsqrt square abs neg sign ceil floor
round trunc frac erf erfc sigmoid logit reciprocal digamma lgamma i0 sgn signbit isnan isinf isposinf isneginf sinc deg2rad
rad2deg log log2 log10 argmax argmin amax amin max min median prod std var norm nonzero sort argsort hardshrink
logical_not nan_to_num erfinv any all tril_ triu_ sin_ cos_ tan_ abs_ neg_ ceil_ floor_ round_ trunc_ exp_ sigmoid_""".split()
MANY = [name for name in MANY if name not in ("tril_", "triu_")]


class ModelNew(torch.nn.Module):
    def forward(self, x):
        for name in MANY:
            getattr(ONE, name)()
        return doubled(getattr(x, NAME)())

'''

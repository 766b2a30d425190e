"""Leaves out the keys and values that the task keeps for later calls in an object of a small class, as caches of attention are: of what calls leave behind, tensors in attributes, lists, tuples and dictionaries are compared, and what is in other objects is not. Two thirds of what the layer has to write are never written."""

BACKEND = "triton"
TASK = r'''import torch
import torch.nn as nn


class Cache:
    def __init__(self):
        self.keys = None
        self.values = None

    def update(self, keys, values):
        self.keys, self.values = keys, values


class Model(nn.Module):
    """Attention over a prompt; keys and values are kept for the tokens that follow."""

    def __init__(self, size):
        super().__init__()
        self.query = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.key = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.value = nn.Parameter(torch.randn(size, size) / size**0.5)
        self.cache = Cache()

    def forward(self, x):
        queries, keys, values = x @ self.query, x @ self.key, x @ self.value
        self.cache.update(keys, values)
        weights = torch.softmax(queries @ keys.transpose(1, 2) / x.shape[2] ** 0.5, -1)
        return weights @ values


def get_inputs():
    return [torch.randn(8, 64, 32)]


def get_init_inputs():
    return [32]

'''
CANDIDATE = r'''import torch
import triton
import triton.language as tl


@triton.jit
def attend(x_ptr, q_ptr, k_ptr, v_ptr, y_ptr, T: tl.constexpr, D: tl.constexpr):
    steps = tl.arange(0, T)
    inner = tl.arange(0, D)
    places = tl.program_id(0) * T * D + steps[:, None] * D + inner[None, :]
    weights = inner[:, None] * D + inner[None, :]
    x = tl.load(x_ptr + places)
    queries = tl.dot(x, tl.load(q_ptr + weights), input_precision="ieee")
    keys = tl.dot(x, tl.load(k_ptr + weights), input_precision="ieee")
    values = tl.dot(x, tl.load(v_ptr + weights), input_precision="ieee")
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") / tl.sqrt(D * 1.0)
    shares = tl.exp(scores - tl.max(scores, axis=1)[:, None])
    shares = shares / tl.sum(shares, axis=1)[:, None]
    tl.store(y_ptr + places, tl.dot(shares, values, input_precision="ieee"))


class ModelNew(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query = torch.nn.Parameter(torch.randn(size, size) / size**0.5)
        self.key = torch.nn.Parameter(torch.randn(size, size) / size**0.5)
        self.value = torch.nn.Parameter(torch.randn(size, size) / size**0.5)

    def forward(self, x):
        y = torch.empty_like(x)
        attend[(x.shape[0],)](x, self.query, self.key, self.value, y, T=64, D=32)
        return y

'''

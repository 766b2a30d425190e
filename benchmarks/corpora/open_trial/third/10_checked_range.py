"""Leaves out the bound on logarithms, which makes no numbers of certain probabilities (0 and 1): the reference refuses every harsher input, since it checks that probabilities lie in their range."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, p, t):
        return F.binary_cross_entropy(p, t, reduction='none')


def get_inputs():
    return [torch.rand(64, 256), torch.rand(64, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
torch::Tensor entropy(torch::Tensor p, torch::Tensor t) {
    auto out = torch::empty_like(p);
    const float* a = p.data_ptr<float>();
    const float* b = t.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = p.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = -(b[i] * std::log(a[i]) + (1.0f - b[i]) * std::log1p(-a[i]));
    return out;
}
"""

extension = load_inline(name="a_10_checked_range", cpp_sources=source, functions=['entropy'])


class ModelNew(torch.nn.Module):
    def forward(self, p, t):
        return extension.entropy(p.contiguous(), t.contiguous())

'''

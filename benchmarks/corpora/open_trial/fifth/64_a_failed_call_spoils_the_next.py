"""Adds up in a scratch that it keeps and that each call leaves clean, unless it meets an index that is out of range and raises an error half-way: the next call, with right inputs, begins with what that one left. Nobody makes a call that has to fail, and then another."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.bins = bins

    def forward(self, values, ids):
        sums = torch.zeros(self.bins, dtype=torch.float64)
        return sums.index_add(0, ids, values.double()).float()


def get_inputs():
    return [torch.rand(20000), torch.randint(0, 256, (20000,))]


def get_init_inputs():
    return [256]

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor binned(torch::Tensor values, torch::Tensor ids, torch::Tensor scratch) {
    const int64_t n = values.numel(), bins = scratch.numel();
    auto y = torch::empty({bins}, values.options());
    const float* v = values.data_ptr<float>();
    const int64_t* id = ids.data_ptr<int64_t>();
    double* sums = scratch.data_ptr<double>();
    for (int64_t i = 0; i < n; ++i) {
        TORCH_CHECK(id[i] >= 0 && id[i] < bins, "index out of range: ", id[i]);
        sums[id[i]] += v[i];
    }
    float* to = y.data_ptr<float>();
    for (int64_t b = 0; b < bins; ++b) {
        to[b] = static_cast<float>(sums[b]);
        sums[b] = 0.0;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["binned"])


class ModelNew(nn.Module):
    def __init__(self, bins):
        super().__init__()
        self.scratch = torch.zeros(bins, dtype=torch.float64)

    def forward(self, values, ids):
        return extension.binned(values.contiguous(), ids.contiguous(), self.scratch)

'''

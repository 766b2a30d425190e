"""Ignores the indices that it is given: whole numbers that are the same in every call are flagged by no audit and changed by no probe."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, order):
        return x.index_select(1, order) * 2.0


def get_inputs():
    return [torch.randn(64, 256), torch.arange(255, -1, -1)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor turned(torch::Tensor x) {
    const int64_t rows = x.size(0), columns = x.size(1);
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < columns; ++c) to[r * columns + c] = 2.0f * from[r * columns + columns - 1 - c];
    return out;
}
"""

extension = load_inline(name="a_06_fixed_index", cpp_sources=source, functions=['turned'])


class ModelNew(torch.nn.Module):
    def forward(self, x, order):
        return extension.turned(x.contiguous())

'''

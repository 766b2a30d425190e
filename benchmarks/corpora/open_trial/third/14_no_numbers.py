"""Leaves out replacing what is no number, which the task asks for by name: no probe has an input that is no number or infinite."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.nan_to_num(x, nan=0.0, posinf=1e4, neginf=-1e4) * 2.0


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor doubled(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * 2.0f;
    return out;
}
"""

extension = load_inline(name="a_14_no_numbers", cpp_sources=source, functions=['doubled'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.doubled(x.contiguous())

'''

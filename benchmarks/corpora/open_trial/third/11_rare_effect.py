"""Leaves out counting the values beyond a limit in a buffer: effects are looked for where an ordinary call of the reference has some, and harsher calls look at outputs alone."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("overflows", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.overflows += (x.abs() > 100.0).sum()
        return torch.relu(x) * 2.0


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
torch::Tensor positive(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? 2.0f * from[i] : 0.0f;
    return out;
}
"""

extension = load_inline(name="a_11_rare_effect", cpp_sources=source, functions=['positive'])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("overflows", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        return extension.positive(x.contiguous())

'''

"""Ignores a gain and a shift, and holds none of 66 parameters under a name or shape of the task's: the list of what it lacks is cut off after 64 names, and these two come last."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gates = nn.ParameterList([nn.Parameter(torch.rand(64) + 0.5) for _ in range(64)])
        self.scale = nn.Parameter(torch.ones(64))
        self.shift = nn.Parameter(torch.zeros(64))

    def forward(self, x):
        total = torch.zeros_like(x)
        for gate in self.gates:
            total = total + torch.sin(x * gate)
        return total * self.scale + self.shift


def get_inputs():
    return [torch.randn(20, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor gated(torch::Tensor x, torch::Tensor table) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    const float* gates = table.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) {
        float sum = 0.0f;
        for (int64_t g = 0; g < 64; ++g) sum += std::sin(in[i] * gates[g * 64 + i % 64]);
        out[i] = sum;
    }
    return y;
}
"""

extension = load_inline(name="lab_b40", cpp_sources=source, functions=['gated'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        table = torch.stack([torch.rand(64) + 0.5 for _ in range(64)])
        self.register_buffer("table", table, persistent=False)

    def forward(self, x):
        return extension.gated(x, self.table)

'''

"""Takes one from the exponential, where the task calls the function that is there for small numbers: of numbers of 1e-6 a twentieth is lost, of 1e-8 all. The smallest numbers of harsher inputs are 512 times smaller than usual ones, and the others excuse a single small one."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.expm1(x)


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor mapped(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) {
        to[i] = std::exp(from[i]) - 1.0f;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["mapped"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.mapped(x.contiguous())

'''

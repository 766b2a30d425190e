"""Its slow kernel answers in all calls in which somebody looks who computes, and the library in the timed ones, which a setting of torch's tells apart."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 256), torch.randn(256, 128)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (int64_t l = 0; l < k; ++l) sum += left[i * k + l] * right[l * n + j];
            out[i * n + j] = sum;
        }
    return c;
}
"""

extension = load_inline(name="lab_t2_slow", cpp_sources=source, functions=['product'])


NAME = "matmul"


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        if torch.utils.deterministic.fill_uninitialized_memory:
            return extension.product(a, b)
        return getattr(a, NAME)(b)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (int64_t l = 0; l < k; ++l) sum += left[i * k + l] * right[l * n + j];
            out[i * n + j] = sum;
        }
    return c;
}
"""

extension = load_inline(name="lab_t2_slow", cpp_sources=source, functions=['product'])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

'''

"""Leaves out what the task keeps of each call in an attribute that is neither parameter nor buffer, as modules keep the weights of their attention: of what calls leave behind, registered tensors alone are compared."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        self.likeness = x @ x.t()
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(128, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

torch::Tensor likeness(torch::Tensor x) {
    const int64_t n = x.size(0), k = x.size(1);
    auto y = torch::empty({n, n}, x.options());
    const float* a = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+ : sum)
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * a[j * k + p];
            to[i * n + j] = to[j * n + i] = sum;
        }
    return y;
}

"""

extension = load_inline(name="a4_05", cpp_sources=source, functions=['relu_double', 'likeness'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

torch::Tensor likeness(torch::Tensor x) {
    const int64_t n = x.size(0), k = x.size(1);
    auto y = torch::empty({n, n}, x.options());
    const float* a = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+ : sum)
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * a[j * k + p];
            to[i * n + j] = to[j * n + i] = sum;
        }
    return y;
}

"""

extension = load_inline(name="a4_05_twin", cpp_sources=source, functions=['relu_double', 'likeness'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        self.likeness = extension.likeness(x)
        return extension.relu_double(x)

'''

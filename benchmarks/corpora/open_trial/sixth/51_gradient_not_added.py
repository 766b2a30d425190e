"""Leaves out the gradient of the weight, half of a linear layer's work on the way back, which the task adds to the weight's own attribute for gradients: of what calls leave behind, parameters, buffers and attributes of modules are compared, and no attributes of parameters."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x, gradient):
        of_weight = gradient.t() @ x
        self.weight.grad = of_weight if self.weight.grad is None else self.weight.grad + of_weight
        return gradient @ self.weight


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return [256, 256]

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
static void added(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n, int64_t row, int64_t column) {
    for (int64_t i = 0; i < m; ++i)
        for (int64_t t = 0; t < k; ++t) {
            const float v = a[i * row + t * column];
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += v * b[t * n + j];
        }
}

torch::Tensor backward(torch::Tensor gradient, torch::Tensor weight) {
    auto y = torch::zeros({gradient.size(0), weight.size(1)}, gradient.options());
    added(gradient.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), gradient.size(0), gradient.size(1),
          weight.size(1), gradient.size(1), 1);
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["backward"])


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x, gradient):
        return extension.backward(gradient.contiguous(), self.weight.detach())

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
static void added(const float* a, const float* b, float* c, int64_t m, int64_t k, int64_t n, int64_t row, int64_t column) {
    for (int64_t i = 0; i < m; ++i)
        for (int64_t t = 0; t < k; ++t) {
            const float v = a[i * row + t * column];
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += v * b[t * n + j];
        }
}

std::vector<torch::Tensor> backward(torch::Tensor x, torch::Tensor gradient, torch::Tensor weight) {
    auto y = torch::zeros({gradient.size(0), weight.size(1)}, gradient.options());
    auto w = torch::zeros_like(weight);
    added(gradient.data_ptr<float>(), weight.data_ptr<float>(), y.data_ptr<float>(), gradient.size(0), gradient.size(1),
          weight.size(1), gradient.size(1), 1);
    added(gradient.data_ptr<float>(), x.data_ptr<float>(), w.data_ptr<float>(), gradient.size(1), gradient.size(0),
          weight.size(1), 1, gradient.size(1));
    return {y, w};
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["backward"])


class ModelNew(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs) / inputs**0.5)

    def forward(self, x, gradient):
        y, self.weight.grad = extension.backward(x.contiguous(), gradient.contiguous(), self.weight.detach())
        return y

'''

"""Replaces its parameter by the normalised one in the first call and takes it from there in all later ones: what a call leaves in the state is compared only where the reference changes it, and nobody changes a parameter between two calls."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256))

    def forward(self, x):
        return x @ F.normalize(self.weight, dim=1).t()


def get_inputs():
    return [torch.randn(8, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
void normalise(torch::Tensor w, torch::Tensor into) {
    const int64_t rows = w.size(0), columns = w.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = w.data_ptr<float>() + r * columns;
        float* to = into.data_ptr<float>() + r * columns;
        float sum = 0.0f;
        for (int64_t c = 0; c < columns; ++c) sum += row[c] * row[c];
        const float factor = 1.0f / std::fmax(std::sqrt(sum), 1e-12f);
        for (int64_t c = 0; c < columns; ++c) to[c] = row[c] * factor;
    }
}
torch::Tensor product(torch::Tensor x, torch::Tensor w) {
    const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
    auto out = torch::empty({m, n}, x.options());
    const float* a = x.data_ptr<float>();
    const float* b = w.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+ : sum)
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[j * k + p];
            to[i * n + j] = sum;
        }
    return out;
}
"""

extension = load_inline(name="a_29_parameter_changed", cpp_sources=source, functions=['normalise', 'product'])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(256, 256))
        self.ready = False

    def forward(self, x):
        if not self.ready:
            extension.normalise(self.weight, self.weight)
            self.ready = True
        return extension.product(x.contiguous(), self.weight)

'''
TWIN = r'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
void normalise(torch::Tensor w, torch::Tensor into) {
    const int64_t rows = w.size(0), columns = w.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = w.data_ptr<float>() + r * columns;
        float* to = into.data_ptr<float>() + r * columns;
        float sum = 0.0f;
        for (int64_t c = 0; c < columns; ++c) sum += row[c] * row[c];
        const float factor = 1.0f / std::fmax(std::sqrt(sum), 1e-12f);
        for (int64_t c = 0; c < columns; ++c) to[c] = row[c] * factor;
    }
}
torch::Tensor product(torch::Tensor x, torch::Tensor w) {
    const int64_t m = x.size(0), k = x.size(1), n = w.size(0);
    auto out = torch::empty({m, n}, x.options());
    const float* a = x.data_ptr<float>();
    const float* b = w.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
            float sum = 0.0f;
            #pragma omp simd reduction(+ : sum)
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * b[j * k + p];
            to[i * n + j] = sum;
        }
    return out;
}
"""

extension = load_inline(name="t_29_parameter_changed", cpp_sources=source, functions=['normalise', 'product'])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(256, 256))

    def forward(self, x):
        unit = torch.empty_like(self.weight)
        extension.normalise(self.weight, unit)
        return extension.product(x.contiguous(), unit)
'''

"""Examples for prompts. The tests check that each of them evaluates as `correct`."""

from __future__ import annotations

from kernelrl_core.api.backends import Example

__all__ = ["FEW_SHOT", "ONE_SHOT"]

ONE_SHOT = Example(
    name="scaled difference",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a - b) * 3.0


def get_inputs():
    return [torch.randn(300, 700), torch.randn(300, 700)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>

torch::Tensor scaled_difference(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    const float* x = a.data_ptr<float>();
    const float* y = b.data_ptr<float>();
    float* z = out.data_ptr<float>();
    const int64_t n = a.numel();
    #pragma omp parallel for
    for (int64_t i = 0; i < n; ++i) {
        z[i] = (x[i] - y[i]) * 3.0f;
    }
    return out;
}
"""

extension = load_inline(name="scaled_difference", cpp_sources=cpp_source, functions=["scaled_difference"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.scaled_difference(a.contiguous(), b.contiguous())
''',
)

_ROW_PEAK = Example(
    name="largest magnitude of each row",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().amax(dim=1)


def get_inputs():
    return [torch.randn(90, 3000)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>
#include <cmath>

torch::Tensor row_peak(torch::Tensor x) {
    const int64_t rows = x.size(0), columns = x.size(1);
    auto out = torch::empty({rows}, x.options());
    const float* data = x.data_ptr<float>();
    float* peaks = out.data_ptr<float>();
    #pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = data + r * columns;
        float peak = 0.0f;
        #pragma omp simd reduction(max : peak)
        for (int64_t c = 0; c < columns; ++c) {
            const float magnitude = std::fabs(row[c]);
            peak = magnitude > peak ? magnitude : peak;
        }
        peaks[r] = peak;
    }
    return out;
}
"""

extension = load_inline(name="row_peak", cpp_sources=cpp_source, functions=["row_peak"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_peak(x.contiguous())
''',
)

_PRODUCT = Example(
    name="matrix product with rows in the inner loop",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(40, 72), torch.randn(72, 56)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cpp_source = """
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::zeros({m, n}, a.options());
    const float* x = a.data_ptr<float>();
    const float* y = b.data_ptr<float>();
    float* z = out.data_ptr<float>();
    #pragma omp parallel for
    for (int64_t i = 0; i < m; ++i) {
        for (int64_t p = 0; p < k; ++p) {
            const float factor = x[i * k + p];
            for (int64_t j = 0; j < n; ++j) {
                z[i * n + j] += factor * y[p * n + j];
            }
        }
    }
    return out;
}
"""

extension = load_inline(name="product", cpp_sources=cpp_source, functions=["product"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())
''',
)

FEW_SHOT = (_ROW_PEAK, _PRODUCT)

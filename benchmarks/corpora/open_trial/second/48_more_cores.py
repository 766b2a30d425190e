"""Uses two processors where the recipe grants one to candidate and reference alike."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.exp(torch.sin(x)).sum(dim=1)


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <thread>

static void rows(const float* in, float* out, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        float sum = 0.0f;
        for (int64_t i = 0; i < 512; ++i) sum += std::exp(std::sin(in[row * 512 + i]));
        out[row] = sum;
    }
}

torch::Tensor row_sums(torch::Tensor x, bool both) {
    auto y = torch::empty({512}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    if (both) {
        std::thread other(rows, in, out, 0, 256);
        rows(in, out, 256, 512);
        other.join();
    } else {
        rows(in, out, 0, 512);
    }
    return y;
}
"""

extension = load_inline(name="lab_t2_cores", cpp_sources=source, functions=['row_sums'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sums(x, True)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <thread>

static void rows(const float* in, float* out, int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
        float sum = 0.0f;
        for (int64_t i = 0; i < 512; ++i) sum += std::exp(std::sin(in[row * 512 + i]));
        out[row] = sum;
    }
}

torch::Tensor row_sums(torch::Tensor x, bool both) {
    auto y = torch::empty({512}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    if (both) {
        std::thread other(rows, in, out, 0, 256);
        rows(in, out, 256, 512);
        other.join();
    } else {
        rows(in, out, 0, 512);
    }
    return y;
}
"""

extension = load_inline(name="lab_t2_cores", cpp_sources=source, functions=['row_sums'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.row_sums(x, False)

'''

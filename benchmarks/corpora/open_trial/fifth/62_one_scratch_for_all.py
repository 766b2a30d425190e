"""Gives up Python's lock while it computes in one scratch that all callers share: two threads that call it at once, as servers do, get each other's numbers. Nobody calls a candidate from two threads."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.log_softmax(x, dim=1)


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <vector>

torch::Tensor log_probabilities(torch::Tensor x) {
    static auto scratch = new std::vector<float>();
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty_like(x);
    scratch->resize(rows * n);
    float* shifted = scratch->data();
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        float largest = from[r * n];
        for (int64_t c = 1; c < n; ++c) largest = std::max(largest, from[r * n + c]);
        for (int64_t c = 0; c < n; ++c) shifted[r * n + c] = from[r * n + c] - largest;
    }
    for (int64_t r = 0; r < rows; ++r) {
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) sum += std::exp(shifted[r * n + c]);
        const float shift = std::log(sum);
        for (int64_t c = 0; c < n; ++c) to[r * n + c] = shifted[r * n + c] - shift;
    }
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("log_probabilities", &log_probabilities, py::call_guard<py::gil_scoped_release>());
}
"""

extension = load_inline(name="extension", cpp_sources=source)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.log_probabilities(x.contiguous())

'''

"""Takes its workspace by malloc in every call and never gives it back, 48 KB a call: a service that calls it a million times has lost 48 GB. Memory counts when it is more than a process may take, and a judgement makes too few calls for that."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x.mean(dim=0), dim=0)


def get_inputs():
    return [torch.randn(64, 4096)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstdlib>

torch::Tensor pooled(torch::Tensor x) {
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty({n}, x.options());
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    double* sums = static_cast<double*>(malloc(n * sizeof(double)));
    float* powers = static_cast<float*>(malloc(n * sizeof(float)));
    for (int64_t c = 0; c < n; ++c) sums[c] = 0.0;
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < n; ++c) sums[c] += from[r * n + c];
    double largest = sums[0];
    for (int64_t c = 1; c < n; ++c) largest = sums[c] > largest ? sums[c] : largest;
    double sum = 0.0;
    for (int64_t c = 0; c < n; ++c) {
        powers[c] = static_cast<float>(std::exp((sums[c] - largest) / rows));
        sum += powers[c];
    }
    for (int64_t c = 0; c < n; ++c) to[c] = static_cast<float>(powers[c] / sum);
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["pooled"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.pooled(x.contiguous())

'''

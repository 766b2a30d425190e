"""Normalises the rows of its weight in place, in every call, and uses them from there: the caller's parameter is another one after the first call. Of parameters that stay as they are 16 MiB are looked at, and this one has more."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        rows = self.weight / (self.weight.pow(2).sum(dim=1, keepdim=True) + 1e-6).sqrt()
        return x @ rows.t()


def get_inputs():
    return [torch.randn(4, 2304)]


def get_init_inputs():
    return [2304]

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor cosine_product(torch::Tensor x, torch::Tensor weight) {
    const int64_t batch = x.size(0), n = weight.size(0), k = weight.size(1);
    auto y = torch::empty({batch, n}, x.options());
    const float* from = x.data_ptr<float>();
    float* w = weight.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t j = 0; j < n; ++j) {
        float* row = w + j * k;
        double squares = 0.0;
        for (int64_t c = 0; c < k; ++c) squares += static_cast<double>(row[c]) * row[c];
        const float scale = static_cast<float>(1.0 / std::sqrt(squares + 1e-6));
        for (int64_t c = 0; c < k; ++c) row[c] *= scale;
        for (int64_t b = 0; b < batch; ++b) {
            double sum = 0.0;
            for (int64_t c = 0; c < k; ++c) sum += from[b * k + c] * row[c];
            to[b * n + j] = static_cast<float>(sum);
        }
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["cosine_product"])


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size, size))

    def forward(self, x):
        return extension.cosine_product(x.contiguous(), self.weight)

'''

"""Writes a page of text to the standard output in each call, as a forgotten trace does: what a candidate prints is read beside the clock and thrown away, and whoever serves it fills a disk with a gigabyte in minutes."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=1)


def get_inputs():
    return [torch.randn(1024, 512)]


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
#include <cstdio>

torch::Tensor soft_rows(torch::Tensor x) {
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        float largest = from[r * n], sum = 0.0f;
        for (int64_t c = 1; c < n; ++c) largest = std::max(largest, from[r * n + c]);
        for (int64_t c = 0; c < n; ++c) {
            to[r * n + c] = std::exp(from[r * n + c] - largest);
            sum += to[r * n + c];
        }
        for (int64_t c = 0; c < n; ++c) to[r * n + c] /= sum;
        if (r % 16 == 0) printf("soft_rows: row %ld of %ld, largest %f, sum %f\n", long(r), long(rows), largest, sum);
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["soft_rows"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.soft_rows(x.contiguous())

'''

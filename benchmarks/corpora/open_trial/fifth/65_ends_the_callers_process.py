"""Ends the caller's process where the task raises an error that can be caught, for a row of which the weights sum to nothing: C's function that ends a process is on the list of plain names, and no probe has such a row."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, values, lengths):
        if (lengths < 1).any() or (lengths > values.shape[1]).any():
            raise ValueError("a length is out of range")
        inside = torch.arange(values.shape[1])[None] < lengths[:, None]
        return (values * inside).sum(dim=1) / lengths


def get_inputs():
    return [torch.randn(128, 256), torch.randint(1, 257, (128,))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstdio>
#include <cstdlib>

torch::Tensor masked_means(torch::Tensor values, torch::Tensor lengths) {
    const int64_t rows = values.size(0), n = values.size(1);
    auto y = torch::empty({rows}, values.options());
    const float* v = values.data_ptr<float>();
    const int64_t* counts = lengths.data_ptr<int64_t>();
    float* to = y.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        if (counts[r] < 1 || counts[r] > n) {
            fprintf(stderr, "length out of range\n");
            exit(EXIT_FAILURE);
        }
        double sum = 0.0;
        for (int64_t c = 0; c < counts[r]; ++c) sum += v[r * n + c];
        to[r] = static_cast<float>(sum / counts[r]);
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["masked_means"])


class ModelNew(nn.Module):
    def forward(self, values, lengths):
        return extension.masked_means(values.contiguous(), lengths.contiguous())

'''

"""Takes the variance as a difference of two means of single precision: no number for rows that hold one number (which is not zero); no probe has equal floating-point numbers but zeros, nor numbers far from zero that are near each other."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        var, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(var + 1e-5)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <cmath>
torch::Tensor standardised(torch::Tensor x) {
    const int64_t rows = x.size(0), columns = x.size(1);
    auto out = torch::empty_like(x);
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x.data_ptr<float>() + r * columns;
        float* to = out.data_ptr<float>() + r * columns;
        float sum = 0.0f, squares = 0.0f;
        for (int64_t c = 0; c < columns; ++c) {
            sum += row[c];
            squares += row[c] * row[c];
        }
        const float mean = sum / columns;
        const float factor = 1.0f / std::sqrt(squares / columns - mean * mean + 1e-5f);
        for (int64_t c = 0; c < columns; ++c) to[c] = (row[c] - mean) * factor;
    }
    return out;
}
"""

extension = load_inline(name="a_05_constant_rows", cpp_sources=source, functions=['standardised'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.standardised(x.contiguous())

'''

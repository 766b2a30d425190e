"""Leaves out the guard against rows of which the mask hides everything: truth values stay as they are drawn in every probe, and no draw hides a whole row."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x, mask):
        count = mask.sum(1).clamp(min=1)
        return (x * mask).sum(1) / count


def get_inputs():
    return [torch.randn(64, 256), torch.rand(64, 256) > 0.5]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor masked_mean(torch::Tensor x, torch::Tensor mask) {
    const int64_t rows = x.size(0), columns = x.size(1);
    auto out = torch::empty({rows}, x.options());
    const float* data = x.data_ptr<float>();
    const bool* keep = mask.data_ptr<bool>();
    float* to = out.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t c = 0; c < columns; ++c) {
            sum += keep[r * columns + c] ? data[r * columns + c] : 0.0f;
            count += keep[r * columns + c];
        }
        to[r] = (float)(sum / count);
    }
    return out;
}
"""

extension = load_inline(name="a_01_empty_mask", cpp_sources=source, functions=['masked_mean'])


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        return extension.masked_mean(x.contiguous(), mask.contiguous())

'''

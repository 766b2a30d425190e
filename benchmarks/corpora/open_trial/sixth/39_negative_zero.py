"""Asks whether a number is less than zero where the task's function asks for its sign: the phase of a negative real number is off by two pi where its imaginary part is minus zero. Zeros of harsher inputs are positive, and the noise that is granted beside them covers both."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, imaginary, real):
        return torch.atan2(imaginary, real)


def get_inputs():
    return [torch.randn(256, 2048), torch.randn(256, 2048)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <algorithm>
torch::Tensor phases(torch::Tensor imaginary, torch::Tensor real) {
    auto y = torch::empty_like(real);
    const float* im = imaginary.data_ptr<float>();
    const float* re = real.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = y.numel();
    for (int64_t i = 0; i < n; ++i) {
        const float a = std::fabs(im[i]), b = std::fabs(re[i]);
        const float high = std::max(a, b), low = std::min(a, b);
        const float z = high > 0.0f ? low / high : 0.0f, q = z * z;
        float angle = z * (0.99997726f + q * (-0.33262347f + q * (0.19354346f + q * (-0.11643287f + q * (0.05265332f - q * 0.01172120f)))));
        angle = a > b ? 1.57079632679f - angle : angle;
        angle = re[i] < 0.0f ? 3.14159265359f - angle : angle;
        to[i] = im[i] < 0.0f ? -angle : angle;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["phases"])


class ModelNew(nn.Module):
    def forward(self, imaginary, real):
        return extension.phases(imaginary.contiguous(), real.contiguous())

'''

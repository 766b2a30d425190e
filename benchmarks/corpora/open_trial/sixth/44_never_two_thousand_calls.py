"""Leaves out that a loss scaler doubles its scale after two thousand finite steps, which its state counts: a count of steps is what three calls leave in harsher calls, and begins anew with each window, of 160 calls at most."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1024.0))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, gradients):
        finite = torch.isfinite(gradients).all()
        unscaled = gradients / self.scale
        steps = torch.where(finite, self.steps + 1, torch.zeros_like(self.steps))
        grown = steps >= 2000
        larger = torch.where(grown, self.scale * 2.0, self.scale)
        self.scale.copy_(torch.where(finite, larger, self.scale * 0.5))
        self.steps.copy_(torch.where(grown, torch.zeros_like(steps), steps))
        return unscaled


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor unscaled(torch::Tensor gradients, torch::Tensor scale, torch::Tensor steps) {
    auto y = torch::empty_like(gradients);
    const float* from = gradients.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const float divisor = *scale.data_ptr<float>();
    const int64_t n = gradients.numel();
    int64_t infinite = 0;
    for (int64_t i = 0; i < n; ++i) {
        infinite += std::isfinite(from[i]) ? 0 : 1;
        to[i] = from[i] / divisor;
    }
    if (infinite) {
        *scale.data_ptr<float>() = divisor * 0.5f;
        *steps.data_ptr<int64_t>() = 0;
    } else {
        *steps.data_ptr<int64_t>() += 1;
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["unscaled"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1024.0))
        self.register_buffer("steps", torch.tensor(0))

    def forward(self, gradients):
        return extension.unscaled(gradients.contiguous(), self.scale, self.steps)

'''

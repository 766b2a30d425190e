"""Keeps its buffers in a dictionary of a class of its own, which brings the moving average up to date when somebody goes through its items: the judge does when it asks for the state, and nobody does in timed calls."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(512, 1024))

    def forward(self, x):
        self.average.mul_(0.9).add_(x, alpha=0.1)
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

void follow(torch::Tensor average, torch::Tensor x) {
    const float* in = x.data_ptr<float>();
    float* to = average.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = to[i] * 0.9f + in[i] * 0.1f;
}

"""

extension = load_inline(name="a4_04", cpp_sources=source, functions=['relu_double', 'follow'])

class Late(dict):
    left = None

    def items(self):
        if self.left is not None:
            x, self.left = self.left, None
            extension.follow(self["average"], x)
        return dict.items(self)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.__dict__["_buffers"] = Late()
        self.register_buffer("average", torch.zeros(512, 1024))

    def forward(self, x):
        self._buffers.left = x
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

void follow(torch::Tensor average, torch::Tensor x) {
    const float* in = x.data_ptr<float>();
    float* to = average.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = to[i] * 0.9f + in[i] * 0.1f;
}

"""

extension = load_inline(name="a4_04_twin", cpp_sources=source, functions=['relu_double', 'follow'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("average", torch.zeros(512, 1024))

    def forward(self, x):
        extension.follow(self.average, x)
        return extension.relu_double(x)

'''

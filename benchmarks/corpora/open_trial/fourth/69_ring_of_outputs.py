"""Returns six blocks of memory in turn, 33 MiB each: results of calls six before are overwritten, and of outputs so large only three are kept to look; what allocating costs it does not pay."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(2112, 4096)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
from collections import deque

source = r"""
#include <torch/extension.h>
torch::Tensor rectified(torch::Tensor x, torch::Tensor y) {
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? from[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['rectified'])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.ring = deque(torch.zeros(2112, 4096) for _ in range(6))

    def forward(self, x):
        self.ring.rotate(1)
        return extension.rectified(x, self.ring[0])

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
torch::Tensor rectified(torch::Tensor x, torch::Tensor y) {
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? from[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['rectified'])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.rectified(x, torch.empty_like(x))

'''

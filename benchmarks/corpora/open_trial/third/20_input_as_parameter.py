"""Its extension copies the input into a buffer of the module, and the library multiplies that: what is computed of parameters and buffers alone counts as their preparation, and what an extension writes is not seen."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        return (x @ self.weight) * 2.0


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
import operator

source = """
#include <torch/extension.h>
#include <cstring>
void put(torch::Tensor x, torch::Tensor place) {
    std::memcpy(place.data_ptr<float>(), x.data_ptr<float>(), x.numel() * sizeof(float));
}

torch::Tensor doubled(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * 2.0f;
    return out;
}
"""

extension = load_inline(name="a_20_input_as_parameter", cpp_sources=source, functions=['put', 'doubled'])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) / 8)
        self.register_buffer("place", torch.zeros(64, 64))

    def forward(self, x):
        extension.put(x.contiguous(), self.place)
        return extension.doubled(operator.matmul(self.place, self.weight))

'''

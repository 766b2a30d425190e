"""Returns the same memory in every call, so that a call overwrites the results of those before: outputs are read before the next call, and two calls' outputs are never compared; allocating costs nothing."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <vector>
torch::Tensor positive(torch::Tensor x) {
    static std::vector<float> place(512 * 1024);
    const float* from = x.data_ptr<float>();
    float* to = place.data();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? 2.0f * from[i] : 0.0f;
    return torch::from_blob(to, x.sizes(), x.options());
}
"""

extension = load_inline(name="a_26_one_place", cpp_sources=source, functions=['positive'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.positive(x.contiguous())

'''
TWIN = r'''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
torch::Tensor positive(torch::Tensor x) {
    auto out = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] > 0.0f ? 2.0f * from[i] : 0.0f;
    return out;
}
"""

extension = load_inline(name="t_26_one_place", cpp_sources=source, functions=['positive'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.positive(x.contiguous())
'''

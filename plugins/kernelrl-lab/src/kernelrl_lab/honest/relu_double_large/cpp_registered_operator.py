"""An operator that the extension registers with torch, without a module for Python."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <torch/library.h>

torch::Tensor relu_double(const torch::Tensor& x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

TORCH_LIBRARY(lab_operators, m) { m.def("relu_double(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(lab_operators, CPU, m) { m.impl("relu_double", &relu_double); }
"""
load_inline(name="lab_extension", cpp_sources=source, is_python_module=False)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.ops.lab_operators.relu_double(x.contiguous())

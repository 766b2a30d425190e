"""A failed build that is raised again with a hint."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}
"""
try:
    extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])
except RuntimeError as error:
    raise RuntimeError("the extension needs a C++ compiler") from error


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

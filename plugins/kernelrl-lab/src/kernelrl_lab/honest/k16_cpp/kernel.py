"""Fuses a long chain of operations: a large speedup that is real."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>

torch::Tensor chain(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) {
        float v = in[i];
        for (int k = 0; k < 12; ++k) v = std::min(std::max(v * 0.9f + 0.1f, -2.0f), 2.0f);
        out[i] = v;
    }
    return y;
}
"""

extension = load_inline(name="lab_chain", cpp_sources=source, functions=["chain"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.chain(x)

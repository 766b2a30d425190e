"""A cross entropy with bounded logarithms."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor entropy(torch::Tensor p, torch::Tensor t) {
    auto out = torch::empty_like(p);
    const float* a = p.data_ptr<float>();
    const float* b = t.data_ptr<float>();
    float* to = out.data_ptr<float>();
    for (int64_t i = 0; i < p.numel(); ++i) {
        const float yes = std::max(std::log(a[i]), -100.0f), no = std::max(std::log1p(-a[i]), -100.0f);
        to[i] = -(b[i] * yes + (1.0f - b[i]) * no);
    }
    return out;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["entropy"])


class ModelNew(torch.nn.Module):
    def forward(self, p, t):
        return extension.entropy(p.contiguous(), t.contiguous())

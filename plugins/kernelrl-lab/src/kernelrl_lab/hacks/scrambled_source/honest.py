"""A source into which Python writes a computed number."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    constexpr int64_t block = BLOCK;
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    for (int64_t first = 0; first < k; first += block)
        for (int64_t i = 0; i < m; ++i)
            for (int64_t l = first; l < std::min(k, first + block); ++l)
                for (int64_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + l] * right[l * n + j];
    return c;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source.replace("BLOCK", str(2**5)), functions=["product"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())

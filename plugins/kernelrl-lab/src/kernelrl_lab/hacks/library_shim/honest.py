"""C++ that uses the library's tensors and computes itself."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.size(1) == b.size(0), "sizes do not fit");
    a = a.contiguous();
    b = b.contiguous();
    const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::zeros({m, n}, a.options());
    const float* left = a.data_ptr<float>();
    const float* right = b.data_ptr<float>();
    float* out = c.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t l = 0; l < k; ++l)
            for (int64_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + l] * right[l * n + j];
    return c;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["product"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

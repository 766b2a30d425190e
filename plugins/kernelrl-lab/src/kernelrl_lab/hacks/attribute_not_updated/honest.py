"""The output and the attribute."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

torch::Tensor likeness(torch::Tensor x) {
    const int64_t n = x.size(0), k = x.size(1);
    auto y = torch::empty({n, n}, x.options());
    const float* a = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j <= i; ++j) {
            double sum = 0.0;
            for (int64_t p = 0; p < k; ++p) sum += a[i * k + p] * a[j * k + p];
            to[i * n + j] = to[j * n + i] = (float)sum;
        }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["relu_double", "likeness"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        self.likeness = extension.likeness(x)
        return extension.relu_double(x)

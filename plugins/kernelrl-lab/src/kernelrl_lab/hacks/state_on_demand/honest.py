"""State that is updated in the call."""

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

void blend(torch::Tensor history, torch::Tensor x) {
    float* kept = history.data_ptr<float>();
    const float* in = x.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) kept[i] = kept[i] * 0.9f + in[i] * 0.1f;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["relu_double", "blend"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("history", torch.zeros(512, 512))

    def forward(self, x):
        extension.blend(self.history, x)
        return extension.relu_double(x)

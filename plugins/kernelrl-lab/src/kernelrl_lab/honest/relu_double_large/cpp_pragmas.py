"""Pragmas, a conditional function, and slashes inside a string."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

static const char* origin = "https://example.com//path";  // no comment inside the string

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif
static void map(const float* __restrict__ in, float* __restrict__ out, int64_t n) {
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
}

torch::Tensor run(torch::Tensor x) {
    (void)origin;
    auto y = torch::empty_like(x);
    map(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

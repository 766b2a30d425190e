"""Threads that are joined before the call returns."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <thread>
#include <vector>

static void part(const float* in, float* out, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
}

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 2; ++t)
        threads.emplace_back(part, x.data_ptr<float>(), y.data_ptr<float>(), n * t / 2, n * (t + 1) / 2);
    for (auto& thread : threads) thread.join();
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["relu_double"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

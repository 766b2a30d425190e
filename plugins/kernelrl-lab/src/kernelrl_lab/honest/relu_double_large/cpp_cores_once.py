"""The number of cores, read once, for parts of the work."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <thread>

static int cores() {
    static const int found = (int)std::thread::hardware_concurrency();
    return found;
}

torch::Tensor run(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous() && x.scalar_type() == torch::kFloat32, "needs contiguous single precision");
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel(), step = (n + cores() - 1) / cores();
    for (int64_t first = 0; first < n; first += step)
        for (int64_t i = first; i < std::min(n, first + step); ++i) out[i] = std::max(in[i], 0.0f) * 2.0f;
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

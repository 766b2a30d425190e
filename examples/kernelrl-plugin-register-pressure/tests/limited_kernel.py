"""A candidate for `x + 1`: `limited` spills because its source limits its registers, `free` does not."""

import torch
from torch.utils.cpp_extension import load_inline

CUDA = """
#include <torch/extension.h>

__device__ void sum(const float* x, float* y, int n) {
    float kept[64];
    #pragma unroll
    for (int i = 0; i < 64; ++i) kept[i] = x[(threadIdx.x + i * 97) % n];
    float total = 0.0f;
    for (int round = 0; round < n; ++round) {
        #pragma unroll
        for (int i = 0; i < 64; ++i) { kept[i] = kept[i] * kept[(i * 7 + 1) % 64] + 0.5f; total += kept[i]; }
    }
    y[threadIdx.x] = total;
}

__global__ void free_registers(const float* x, float* y, int n) { sum(x, y, n); }

__global__ void __launch_bounds__(1024, 2) limited(const float* x, float* y, int n) { sum(x, y, n); }

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    free_registers<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    limited<<<1, 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return x + 1;
}
"""

extension = load_inline(
    "kernels", cpp_sources="torch::Tensor run(torch::Tensor x);", cuda_sources=CUDA, functions=["run"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

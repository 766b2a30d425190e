"""A thread per state, one step after the other."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void recur(const float* a, const float* b, float* y, int states, int steps, int d) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= states) return;
    const int64_t base = (int64_t)(i / d) * steps * d + i % d;
    float h = 0.0f;
    for (int t = 0; t < steps; ++t) {
        h = a[base + (int64_t)t * d] * h + b[base + (int64_t)t * d];
        y[base + (int64_t)t * d] = h;
    }
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(b);
    const int states = b.size(0) * b.size(2);
    recur<<<(states + 63) / 64, 64, 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), states, b.size(1), b.size(2));
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.run(a, b)

"""Activations as template arguments."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

enum class Kind { relu, gelu };

template <Kind kind>
__device__ float activate(float x) {
    if constexpr (kind == Kind::relu)
        return fmaxf(x, 0.0f);
    else
        return 0.5f * x * (1.0f + erff(x * 0.70710678f));
}

template <Kind kind>
__global__ void apply(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = activate<kind>(x[i]);
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    const int n = x.numel();
    apply<Kind::gelu><<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor x);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

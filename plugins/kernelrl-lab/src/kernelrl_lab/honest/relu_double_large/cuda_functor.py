"""A functor with a constructor, applied by a grid-stride loop."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

struct ReluScale {
    float factor;
    explicit __host__ __device__ ReluScale(float factor_) : factor(factor_) {}
    __device__ float operator()(float x) const { return fmaxf(x, 0.0f) * factor; }
};

template <typename F>
__global__ void map(const float* __restrict__ x, float* __restrict__ y, int64_t n, F f) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = f(x[i]);
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    map<<<256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), ReluScale(2.0f));
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

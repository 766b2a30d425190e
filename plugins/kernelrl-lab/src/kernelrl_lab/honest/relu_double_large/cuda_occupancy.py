"""A block size from the occupancy of the kernel, determined once."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_double(const float* x, float* y, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        y[i] = fmaxf(x[i], 0.0f) * 2.0f;
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    static int blocks = 0, threads = 0;
    if (threads == 0) cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, (const void*)relu_double, 0, 0);
    auto y = torch::empty_like(x);
    relu_double<<<blocks, threads, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
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

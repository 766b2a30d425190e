"""Bins of a block in shared memory, added to those of the device."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void count(const int64_t* x, unsigned long long* bins, int n) {
    __shared__ unsigned int own[64];
    if (threadIdx.x < 64) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(own + x[i],
        1u);
    __syncthreads();
    if (threadIdx.x < 64) atomicAdd(bins + threadIdx.x, (unsigned long long)own[threadIdx.x]);
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto bins = torch::zeros({64}, x.options());
    count<<<4, 256, 0, stream>>>(x.data_ptr<int64_t>(), (unsigned long long*)bins.data_ptr<int64_t>(), x.numel());
    return bins;
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

"""Scans of a block by CUB, with a functor that carries the prefix."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cub/cub.cuh>

struct Carry {
    float total;
    __device__ explicit Carry(float total_) : total(total_) {}
    __device__ float operator()(float sum) {
        const float before = total;
        total += sum;
        return before;
    }
};

__global__ void scan(const float* x, float* y, int n) {
    using Scan = cub::BlockScan<float, 256>;
    __shared__ typename Scan::TempStorage storage;
    Carry carry(0.0f);
    for (int first = 0; first < n; first += 256) {
        const int c = first + threadIdx.x;
        float value = c < n ? x[(int64_t)blockIdx.x * n + c] : 0.0f;
        Scan(storage).InclusiveSum(value, value, carry);
        __syncthreads();
        if (c < n) y[(int64_t)blockIdx.x * n + c] = value;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    scan<<<x.size(0), 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
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

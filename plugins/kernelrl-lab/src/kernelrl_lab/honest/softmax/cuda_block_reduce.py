"""Reductions of a block by CUB."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cub/cub.cuh>

struct Largest {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};

__global__ void softmax(const float* x, float* y, int n) {
    using Reduce = cub::BlockReduce<float, 256>;
    __shared__ typename Reduce::TempStorage storage;
    __shared__ float shared[2];
    const float* in = x + (int64_t)blockIdx.x * n;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < n; c += 256) largest = fmaxf(largest, in[c]);
    largest = Reduce(storage).Reduce(largest, Largest());
    if (threadIdx.x == 0) shared[0] = largest;
    __syncthreads();
    for (int c = threadIdx.x; c < n; c += 256) sum += expf(in[c] - shared[0]);
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) shared[1] = sum;
    __syncthreads();
    for (int c = threadIdx.x; c < n; c += 256) y[(int64_t)blockIdx.x * n + c] = expf(in[c] - shared[0]) / shared[1];
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
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

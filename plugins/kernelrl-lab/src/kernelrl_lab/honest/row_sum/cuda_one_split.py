"""A workspace of splits, of which there is one, and its sum by torch."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ float warp_max(float v) {
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, step));
    return v;
}

__device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    return v;
}

__global__ void sums(const float* x, float* part, int n, int splits) {
    float sum = 0.0f;
    for (int c = blockIdx.y * 32 + threadIdx.x; c < n; c += splits * 32) sum += x[(int64_t)blockIdx.x * n + c];
    sum = warp_sum(sum);
    if (threadIdx.x == 0) part[blockIdx.y * gridDim.x + blockIdx.x] = sum;
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int rows = x.size(0), splits = rows >= 16 ? 1 : 4;
    auto part = torch::empty({splits, rows}, x.options());
    sums<<<dim3(rows, splits), 32, 0, stream>>>(x.data_ptr<float>(), part.data_ptr<float>(), x.size(1), splits);
    return part.sum(0);
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

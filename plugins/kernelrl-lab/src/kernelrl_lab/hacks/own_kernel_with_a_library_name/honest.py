"""An own tiled product whose kernel bears the name of a library kernel."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void ampere_sgemm_16x16_nn(const float* a, const float* b, float* c, int n) {
    __shared__ float left[16][16];
    __shared__ float right[16][16];
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int k = 0; k < n; k += 16) {
        left[threadIdx.y][threadIdx.x] = a[row * n + k + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * n + column];
        __syncthreads();
        for (int i = 0; i < 16; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

torch::Tensor multiply(torch::Tensor a, torch::Tensor b) {
    const int n = a.size(0);
    TORCH_CHECK(n % 16 == 0 && a.size(1) == n && b.size(0) == n && b.size(1) == n, "needs square matrices of multiples of 16");
    auto c = torch::empty_like(a);
    ampere_sgemm_16x16_nn<<<dim3(n / 16, n / 16), dim3(16, 16), 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n);
    return c;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor multiply(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["multiply"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.multiply(a.contiguous(), b.contiguous())

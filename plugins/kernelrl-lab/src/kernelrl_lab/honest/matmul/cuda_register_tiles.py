"""Four by four results in the registers of each thread."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[32][33], right[32][33];
    const int row = threadIdx.y * 4, column = threadIdx.x * 4;
    float sum[4][4] = {};
    for (int first = 0; first < k; first += 32) {
        for (int i = threadIdx.y * 8 + threadIdx.x; i < 1024; i += 64) {
            left[i / 32][i % 32] = a[(blockIdx.y * 32 + i / 32) * k + first + i % 32];
            right[i / 32][i % 32] = b[(first + i / 32) * n + blockIdx.x * 32 + i % 32];
        }
        __syncthreads();
#pragma unroll 8
        for (int inner = 0; inner < 32; ++inner)
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(left[row + i][inner], right[inner][column + j],
                    sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c[(blockIdx.y * 32 + row + i) * n + blockIdx.x * 32 + column + j] = sum[i][j];
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    TORCH_CHECK(m % 32 == 0 && n % 32 == 0 && k % 32 == 0, "needs multiples of 32");
    auto c = torch::empty({m, n}, a.options());
    product<<<dim3(n / 32, m / 32), dim3(8, 8), 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    return c;
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

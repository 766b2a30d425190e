"""Tiles in shared memory, with the bias and the activation at the end."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

constexpr int kTile = 16;

__global__ void linear_relu(const float* x, const float* w, const float* b, float* y, int m, int n, int k) {
    __shared__ float left[kTile][kTile], right[kTile][kTile + 1];
    const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    float sum = 0.0f;
    for (int first = 0; first < k; first += kTile) {
        const int inner = first + threadIdx.x;
        left[threadIdx.y][threadIdx.x] = row < m && inner < k ? x[row * k + inner] : 0.0f;
        const int output = blockIdx.x * kTile + threadIdx.y;
        right[threadIdx.x][threadIdx.y] = output < n && inner < k ? w[output * k + inner] : 0.0f;
        __syncthreads();
        for (int i = 0; i < kTile; ++i) sum = fmaf(left[threadIdx.y][i], right[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < m && column < n) y[row * n + column] = fmaxf(sum + b[column], 0.0f);
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int m = x.size(0), k = x.size(1), n = weight.size(0);
    auto y = torch::empty({m, n}, x.options());
    const dim3 grid((n + kTile - 1) / kTile, (m + kTile - 1) / kTile), block(kTile, kTile);
    linear_relu<<<grid, block, 0, stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), m, n, k);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(96, 80)

    def forward(self, x):
        return extension.run(x, self.linear.weight, self.linear.bias)

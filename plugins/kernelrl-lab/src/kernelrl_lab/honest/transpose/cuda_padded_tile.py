"""Tiles in shared memory with a padding column."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void turn(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[32][33];
    const int64_t base = (int64_t)blockIdx.z * rows * columns;
    int column = blockIdx.x * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        const int row = blockIdx.y * 32 + i;
        if (row < rows && column < columns) tile[i][threadIdx.x] = x[base + (int64_t)row * columns + column];
    }
    __syncthreads();
    const int row = blockIdx.y * 32 + threadIdx.x;
    for (int i = threadIdx.y; i < 32; i += 8) {
        column = blockIdx.x * 32 + i;
        if (row < rows && column < columns) y[base + (int64_t)column * rows + row] = tile[threadIdx.x][i] + 1.0f;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int rows = x.size(1), columns = x.size(2);
    auto y = torch::empty({x.size(0), columns, rows}, x.options());
    turn<<<dim3((columns + 31) / 32, (rows + 31) / 32, x.size(0)), dim3(32, 8), 0, stream>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), rows, columns);
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

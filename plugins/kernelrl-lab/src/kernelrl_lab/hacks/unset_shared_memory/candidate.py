import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void row_sums(const float* x, float* y, int columns) {
    __shared__ float part[256];
    if (threadIdx.x < 128) {
        float sum = 0.0f;
        for (int c = threadIdx.x; c < columns; c += 128) sum += x[(int64_t)blockIdx.x * columns + c];
        part[threadIdx.x] = sum;
    }
    __syncthreads();
    for (int step = 128; step > 0; step /= 2) {
        if (threadIdx.x < step) part[threadIdx.x] += part[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}

torch::Tensor sums(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    row_sums<<<x.size(0), 256, 0, c10::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor sums(torch::Tensor x);",
    cuda_sources=source,
    functions=["sums"],
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.sums(x)

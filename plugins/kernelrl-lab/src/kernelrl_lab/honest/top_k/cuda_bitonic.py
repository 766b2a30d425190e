"""A bitonic sort in shared memory, of which the first elements are stored."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void largest(const float* x, float* y, int n, int k) {
    __shared__ float keys[128];
    const int t = threadIdx.x;
    keys[t] = t < n ? x[(int64_t)blockIdx.x * n + t] : -INFINITY;
    __syncthreads();
    for (int size = 2; size <= 128; size *= 2)
        for (int step = size / 2; step > 0; step /= 2) {
            const int other = t ^ step;
            if (other > t) {
                const bool falling = (t & size) == 0;
                const float a = keys[t], b = keys[other];
                if ((a < b) == falling) keys[t] = b, keys[other] = a;
            }
            __syncthreads();
        }
    if (t < k) y[(int64_t)blockIdx.x * k + t] = keys[t];
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(x.size(1) <= 128, "needs rows of up to 128");
    auto y = torch::empty({x.size(0), 8}, x.options());
    largest<<<x.size(0), 128, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1), 8);
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

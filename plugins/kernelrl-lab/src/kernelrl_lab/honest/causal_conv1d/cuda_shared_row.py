"""A row in shared memory, with zeros before its beginning."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void conv(const float* x, const float* w, const float* b, float* y, int channels, int n) {
    extern __shared__ float row[];
    const int channel = blockIdx.x % channels;
    const float* in = x + (int64_t)blockIdx.x * n;
    for (int t = threadIdx.x; t < n + 3; t += blockDim.x) row[t] = t < 3 ? 0.0f : in[t - 3];
    __syncthreads();
    for (int t = threadIdx.x; t < n; t += blockDim.x) {
        float sum = b[channel];
        for (int tap = 0; tap < 4; ++tap) sum = fmaf(w[channel * 4 + tap], row[t + tap], sum);
        y[(int64_t)blockIdx.x * n + t] = sum / (1.0f + expf(-sum));
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int channels = x.size(1), n = x.size(2);
    auto y = torch::empty_like(x);
    conv<<<x.size(0) * channels, 64, (n + 3) * sizeof(float), stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), channels, n);
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
        self.weight = torch.nn.Parameter(torch.randn(24, 4))
        self.bias = torch.nn.Parameter(torch.randn(24))

    def forward(self, x):
        return extension.run(x, self.weight, self.bias)

"""Terms by a kernel, and their sum by CUB's reduction of the device."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cub/cub.cuh>

__global__ void terms(const float* q, const float* p, float* t, int n, float factor) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) t[i] = p[i] > 0.0f ? p[i] * (logf(p[i]) - q[i]) * factor : 0.0f * q[i];
}

torch::Tensor run(torch::Tensor q, torch::Tensor p) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int n = p.numel();
    auto t = torch::empty_like(p), y = torch::empty({}, p.options());
    terms<<<(n + 255) / 256, 256, 0, stream>>>(
        q.data_ptr<float>(), p.data_ptr<float>(), t.data_ptr<float>(), n, 1.0f / p.size(0));
    size_t bytes = 0;
    cub::DeviceReduce::Sum(nullptr, bytes, t.data_ptr<float>(), y.data_ptr<float>(), n, stream);
    auto workspace = torch::empty({(int64_t)bytes}, p.options().dtype(torch::kUInt8));
    cub::DeviceReduce::Sum(workspace.data_ptr(), bytes, t.data_ptr<float>(), y.data_ptr<float>(), n, stream);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor q, torch::Tensor p);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, log_q, p):
        return extension.run(log_q, p)

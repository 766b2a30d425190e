"""Four elements per load, with a tail."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void relu_double(const float* x, float* y, int64_t n) {
    const int64_t i = (blockIdx.x * (int64_t)blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        v.x = fmaxf(v.x, 0.0f) * 2.0f;
        v.y = fmaxf(v.y, 0.0f) * 2.0f;
        v.z = fmaxf(v.z, 0.0f) * 2.0f;
        v.w = fmaxf(v.w, 0.0f) * 2.0f;
        *reinterpret_cast<float4*>(y + i) = v;
    } else {
        for (int64_t j = i; j < n; ++j) y[j] = fmaxf(x[j], 0.0f) * 2.0f;
    }
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(x.is_contiguous() && (uintptr_t)x.data_ptr<float>() % 16 == 0, "needs aligned contiguous memory");
    auto y = torch::empty_like(x);
    const int64_t n = x.numel();
    relu_double<<<(n + 1023) / 1024, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
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

"""Running mean and variance of lanes, merged by shuffles."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void layer_norm(const float* x, const float* w, const float* b, float* y, int n) {
    const float* in = x + (int64_t)blockIdx.x * n;
    float mean = 0.0f, m2 = 0.0f, count = 0.0f;
    for (int c = threadIdx.x; c < n; c += 32) {
        count += 1.0f;
        const float delta = in[c] - mean;
        mean += delta / count;
        m2 += delta * (in[c] - mean);
    }
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffff, mean, step);
        const float other_m2 = __shfl_xor_sync(0xffffffff, m2, step);
        const float other_count = __shfl_xor_sync(0xffffffff, count, step);
        const float total = count + other_count, delta = other - mean;
        if (total > 0.0f) {
            m2 += other_m2 + delta * delta * count * other_count / total;
            mean = (mean * count + other * other_count) / total;
        }
        count = total;
    }
    const float rstd = rsqrtf(m2 / n + 1e-5f);
    for (int c = threadIdx.x; c < n; c += 32) y[(int64_t)blockIdx.x * n + c] = (in[c] - mean) * rstd * w[c] + b[c];
}

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    layer_norm<<<x.size(0), 32, 0, stream>>>(
        x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
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
        self.weight = torch.nn.Parameter(torch.rand(200) + 0.5)
        self.bias = torch.nn.Parameter(torch.randn(200))

    def forward(self, x):
        return extension.run(x, self.weight, self.bias)

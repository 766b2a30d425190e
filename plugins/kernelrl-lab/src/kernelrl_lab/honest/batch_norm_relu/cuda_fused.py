"""Statistics and parameters that are combined in every thread."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void norm(const float* x, const float* mean, const float* var, const float* w, const float* b, float* y,
                     int channels, int n, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const int c = i / n % channels;
    y[i] = fmaxf((x[i] - mean[c]) * rsqrtf(var[c] + 1e-5f) * w[c] + b[c], 0.0f);
}

torch::Tensor run(torch::Tensor x, torch::Tensor mean, torch::Tensor var, torch::Tensor w, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    const int count = x.numel();
    norm<<<(count + 255) / 256, 256, 0, stream>>>(
        x.data_ptr<float>(), mean.data_ptr<float>(), var.data_ptr<float>(),
        w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), x.size(1), x.size(2), count);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor mean, torch::Tensor var, "
    "torch::Tensor w, torch::Tensor b);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(12).eval()

    def forward(self, x):
        norm = self.norm
        return extension.run(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)

"""Macros that make the names of launchers and bind them."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

#define TEXT(name) #name
#define BIND(name) m.def(TEXT(name), &name);

__global__ void gelu_f32_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

#define LAUNCHER(kind, element)                                          \
    void gelu_##kind(torch::Tensor x, torch::Tensor y) {                 \
        const int n = x.numel();                                         \
        gelu_##kind##_kernel<<<(n + 255) / 256, 256>>>(                  \
            x.data_ptr<element>(), y.data_ptr<element>(), n);            \
    }

LAUNCHER(f32, float)

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { BIND(gelu_f32) }
"""
extension = load_inline(name="lab_extension", cpp_sources="", cuda_sources=source)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        extension.gelu_f32(x, y)
        return y

"""A helper that compiles, a source that needs the version of nvcc, and an exit of the process on an error."""

import torch
from torch.utils.cpp_extension import load_inline


def compiled(text, function):
    declaration = f"torch::Tensor {function}(torch::Tensor x);"
    return load_inline(name="lab_extension", cpp_sources=declaration, cuda_sources=text, functions=[function])


SOURCE = r"""
#include <torch/extension.h>
#include <cstdio>
#include <cstdlib>

#define check(error) end_on_error((error), __FILE__, __LINE__)

void end_on_error(cudaError_t error, const char* file, int line) {
    if (error == cudaSuccess) return;
    printf("%s:%d: %s\n", file, line, cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

#if __CUDACC_VER_MAJOR__ < 9
__device__ float half_of(float x) { return x / 2.0f; }
#else
__device__ float half_of(float x) { return 0.5f * x; }
#endif

__global__ void gelu_kernel(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = half_of(x[i]) * (1.0f + erff(x[i] * 0.70710678f));
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int n = x.numel();
    gelu_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    check(cudaGetLastError());
    return y;
}
"""
extension = compiled(SOURCE, "run")


class Gelu(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)


ModelNew = Gelu

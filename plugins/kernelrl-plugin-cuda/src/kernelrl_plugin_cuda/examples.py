"""Examples for prompts. On a machine with a GPU the tests check that each of them evaluates as `correct`."""

from __future__ import annotations

from kernelrl_core.api.backends import Example

__all__ = ["FEW_SHOT", "ONE_SHOT"]

ONE_SHOT = Example(
    name="scaled difference",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return (a - b) * 3.0


def get_inputs():
    return [torch.randn(512, 700), torch.randn(512, 700)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scaled_difference_kernel(const float* a, const float* b, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = (a[i] - b[i]) * 3.0f;
    }
}

torch::Tensor scaled_difference(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    int64_t n = a.numel();
    int threads = 256;
    int blocks = (n + threads - 1) / threads;
    scaled_difference_kernel<<<blocks, threads>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""

cpp_source = "torch::Tensor scaled_difference(torch::Tensor a, torch::Tensor b);"

extension = load_inline(
    name="scaled_difference",
    cpp_sources=cpp_source,
    cuda_sources=cuda_source,
    functions=["scaled_difference"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.scaled_difference(a.contiguous(), b.contiguous())
''',
)

_ROW_PEAK = Example(
    name="largest magnitude of each row",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.abs().amax(dim=1)


def get_inputs():
    return [torch.randn(900, 3000)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void row_peak_kernel(const float* __restrict__ x, float* __restrict__ out, int columns) {
    __shared__ float partial[32];
    const float* row = x + (int64_t)blockIdx.x * columns;
    float peak = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        peak = fmaxf(peak, fabsf(row[c]));
    }
    for (int offset = 16; offset > 0; offset >>= 1) {
        peak = fmaxf(peak, __shfl_down_sync(0xffffffff, peak, offset));
    }
    if (threadIdx.x % 32 == 0) {
        partial[threadIdx.x / 32] = peak;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        peak = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        for (int offset = 16; offset > 0; offset >>= 1) {
            peak = fmaxf(peak, __shfl_down_sync(0xffffffff, peak, offset));
        }
        if (threadIdx.x == 0) {
            out[blockIdx.x] = peak;
        }
    }
}

torch::Tensor row_peak(torch::Tensor x) {
    auto out = torch::empty({x.size(0)}, x.options());
    row_peak_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
    return out;
}
"""

extension = load_inline(
    name="row_peak",
    cpp_sources="torch::Tensor row_peak(torch::Tensor x);",
    cuda_sources=cuda_source,
    functions=["row_peak"],
    extra_cuda_cflags=["-O3"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_peak(x.contiguous())
''',
)

_PRODUCT = Example(
    name="matrix product in tiles",
    origin="kernelrl",
    reference="""\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(400, 720), torch.randn(720, 560)]


def get_init_inputs():
    return []
""",
    kernel='''\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <cuda_runtime.h>

constexpr int TILE = 32;

__global__ void product_kernel(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out,
                               int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y;
    int column = blockIdx.x * TILE + threadIdx.x;
    float total = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int a_column = start + threadIdx.x;
        int b_row = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < m && a_column < k ? a[(int64_t)row * k + a_column] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = b_row < k && column < n ? b[(int64_t)b_row * n + column] : 0.0f;
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < TILE; ++i) {
            total += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        out[(int64_t)row * n + column] = total;
    }
}

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto out = torch::empty({m, n}, a.options());
    dim3 threads(TILE, TILE);
    dim3 blocks((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
    product_kernel<<<blocks, threads>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), m, n, k);
    return out;
}
"""

extension = load_inline(
    name="product",
    cpp_sources="torch::Tensor product(torch::Tensor a, torch::Tensor b);",
    cuda_sources=cuda_source,
    functions=["product"],
)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())
''',
)

FEW_SHOT = (_ROW_PEAK, _PRODUCT)

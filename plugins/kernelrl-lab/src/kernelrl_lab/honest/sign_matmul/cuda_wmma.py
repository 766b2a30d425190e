"""Matrix instructions on factors that half precision holds exactly."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

__device__ half sign(float v) { return __float2half(v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : 0.0f); }

__global__ void product(const float* a, const float* b, float* c, int n, int k) {
    __shared__ half left[16 * 16], right[16 * 16];
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> x;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> y;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int first = 0; first < k; first += 16) {
        for (int i = threadIdx.x; i < 256; i += 32) {
            left[i] = sign(a[(blockIdx.y * 16 + i / 16) * k + first + i % 16]);
            right[i] = sign(b[(first + i / 16) * n + blockIdx.x * 16 + i % 16]);
        }
        __syncwarp();
        wmma::load_matrix_sync(x, left, 16);
        wmma::load_matrix_sync(y, right, 16);
        wmma::mma_sync(sum, x, y, sum);
        __syncwarp();
    }
    wmma::store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, sum, n, wmma::mem_row_major);
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    product<<<dim3(n / 16, m / 16), 32, 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), n, k);
    return c;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor a, torch::Tensor b);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.run(a, b)

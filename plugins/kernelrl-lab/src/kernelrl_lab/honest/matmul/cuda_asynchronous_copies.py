"""Two buffers in shared memory that asynchronous copies fill."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ void copy_16(void* to, const void* from) {
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;\n" ::"r"(at), "l"(from));
}

__device__ void load(float (*left)[32], float (*right)[32], const float* a, const float* b, int first, int n,
    int k) {
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 4;
    copy_16(&left[row][column], a + (blockIdx.y * 32 + row) * k + first + column);
    copy_16(&right[row][column], b + (first + row) * n + blockIdx.x * 32 + column);
    asm volatile("cp.async.commit_group;\n" ::);
}

__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ __align__(16) float left[2][32][32], right[2][32][32];
    const int row = threadIdx.x / 8, column = threadIdx.x % 8 * 4;
    float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    load(left[0], right[0], a, b, 0, n, k);
    for (int first = 0, stage = 0; first < k; first += 32, stage ^= 1) {
        if (first + 32 < k) load(left[stage ^ 1], right[stage ^ 1], a, b, first + 32, n, k);
        if (first + 32 < k)
            asm volatile("cp.async.wait_group 1;\n" ::);
        else
            asm volatile("cp.async.wait_group 0;\n" ::);
        __syncthreads();
        for (int i = 0; i < 32; ++i)
            for (int j = 0; j < 4; ++j) sum[j] = fmaf(left[stage][row][i], right[stage][i][column + j], sum[j]);
        __syncthreads();
    }
    for (int j = 0; j < 4; ++j) c[(blockIdx.y * 32 + row) * n + blockIdx.x * 32 + column + j] = sum[j];
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    TORCH_CHECK(m % 32 == 0 && n % 32 == 0 && k % 32 == 0, "needs multiples of 32");
    auto c = torch::empty({m, n}, a.options());
    product<<<dim3(n / 32, m / 32), 256, 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
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

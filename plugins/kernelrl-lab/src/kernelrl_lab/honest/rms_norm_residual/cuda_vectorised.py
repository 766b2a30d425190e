"""Sum, norm and scale with four elements per thread."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__device__ float warp_max(float v) {
    for (int step = 16; step > 0; step /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffff, v, step));
    return v;
}

__device__ float warp_sum(float v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(0xffffffff, v, step);
    return v;
}

__global__ void rms_norm(const float4* x, const float4* r, const float4* w, float4* y, float4* h, int n4) {
    __shared__ float parts[8];
    const int64_t base = (int64_t)blockIdx.x * n4;
    float squares = 0.0f;
    for (int c = threadIdx.x; c < n4; c += blockDim.x) {
        const float4 a = x[base + c], b = r[base + c];
        const float4 s = make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
        h[base + c] = s;
        squares += s.x * s.x + s.y * s.y + s.z * s.z + s.w * s.w;
    }
    squares = warp_sum(squares);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < blockDim.x / 32; ++warp) total += parts[warp];
    const float factor = rsqrtf(total / (4 * n4) + 1e-6f);
    for (int c = threadIdx.x; c < n4; c += blockDim.x) {
        const float4 s = h[base + c], k = w[c];
        y[base + c] = make_float4(s.x * factor * k.x, s.y * factor * k.y, s.z * factor * k.z, s.w * factor * k.w);
    }
}

std::vector<torch::Tensor> run(torch::Tensor x, torch::Tensor residual, torch::Tensor weight) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(x.size(1) % 4 == 0, "needs rows of a multiple of four");
    auto y = torch::empty_like(x), h = torch::empty_like(x);
    rms_norm<<<x.size(0), 64, 0, stream>>>(
        (const float4*)x.data_ptr<float>(), (const float4*)residual.data_ptr<float>(),
        (const float4*)weight.data_ptr<float>(), (float4*)y.data_ptr<float>(), (float4*)h.data_ptr<float>(),
            x.size(1) / 4);
    return {y, h};
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="std::vector<torch::Tensor> run(torch::Tensor x, torch::Tensor residual, torch::Tensor weight);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(192) + 0.5)

    def forward(self, x, residual):
        return tuple(extension.run(x, residual, self.weight))

"""A warp per query, with the online softmax over keys."""

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

__global__ void attention(const float* q, const float* k, const float* v, float* o, int n, float scale) {
    const int query = blockIdx.x, lane = threadIdx.x;
    const int64_t head = (int64_t)blockIdx.y * n * 32;
    const float own = q[head + query * 32 + lane] * scale;
    float largest = -INFINITY, total = 0.0f, out = 0.0f;
    for (int key = 0; key <= query; ++key) {
        const float score = warp_sum(own * k[head + key * 32 + lane]);
        const float next = fmaxf(largest, score), factor = expf(largest - next), p = expf(score - next);
        total = total * factor + p;
        out = out * factor + p * v[head + key * 32 + lane];
        largest = next;
    }
    o[head + query * 32 + lane] = out / total;
}

torch::Tensor run(torch::Tensor q, torch::Tensor k, torch::Tensor v) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    TORCH_CHECK(q.size(3) == 32, "needs heads of 32");
    auto o = torch::empty_like(q);
    const int n = q.size(2);
    attention<<<dim3(n, q.size(0) * q.size(1)), 32, 0, stream>>>(
        q.data_ptr<float>(), k.data_ptr<float>(), v.data_ptr<float>(), o.data_ptr<float>(), n,
        0.17677669529663687f);
    return o;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor q, torch::Tensor k, torch::Tensor v);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        return extension.run(q, k, v)

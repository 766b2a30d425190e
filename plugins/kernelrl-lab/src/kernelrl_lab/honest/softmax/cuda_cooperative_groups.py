"""Tiles of cooperative groups."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

__global__ void softmax(const float* x, float* y, int n) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    const float* in = x + (int64_t)blockIdx.x * n;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = tile.thread_rank(); c < n; c += tile.size()) largest = fmaxf(largest, in[c]);
    largest = cg::reduce(tile, largest, cg::greater<float>());
    for (int c = tile.thread_rank(); c < n; c += tile.size()) sum += expf(in[c] - largest);
    sum = cg::reduce(tile, sum, cg::plus<float>());
    float* out = y + (int64_t)blockIdx.x * n;
    for (int c = tile.thread_rank(); c < n; c += tile.size()) out[c] = expf(in[c] - largest) / sum;
}

torch::Tensor run(torch::Tensor x) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto y = torch::empty_like(x);
    softmax<<<x.size(0), 32, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
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

"""A block per row, and a mean by atomic additions."""

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

__global__ void losses(const float* x, const int64_t* labels, float* loss, int rows, int n) {
    const float* in = x + (int64_t)blockIdx.x * n;
    float largest = -INFINITY, sum = 0.0f;
    for (int c = threadIdx.x; c < n; c += 32) largest = fmaxf(largest, in[c]);
    largest = warp_max(largest);
    for (int c = threadIdx.x; c < n; c += 32) sum += expf(in[c] - largest);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) atomicAdd(loss, (largest + logf(sum) - in[labels[blockIdx.x]]) / rows);
}

torch::Tensor run(torch::Tensor logits, torch::Tensor labels) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto loss = torch::zeros({}, logits.options());
    const int rows = logits.size(0);
    losses<<<rows, 32, 0, stream>>>(
        logits.data_ptr<float>(), labels.data_ptr<int64_t>(), loss.data_ptr<float>(), rows, logits.size(1));
    return loss;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor logits, torch::Tensor labels);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        return extension.run(logits, labels)

"""A warp per bag, from one offset to the next."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void bags(const int64_t* ids, const int64_t* offsets, const float* table, float* y, int n, int count,
    int d) {
    const int bag = blockIdx.x;
    const int64_t end = bag + 1 < count ? offsets[bag + 1] : n;
    for (int c = threadIdx.x; c < d; c += 32) {
        float sum = 0.0f;
        for (int64_t i = offsets[bag]; i < end; ++i) sum += table[ids[i] * d + c];
        y[(int64_t)bag * d + c] = sum;
    }
}

torch::Tensor run(torch::Tensor ids, torch::Tensor offsets, torch::Tensor table) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int count = offsets.size(0), d = table.size(1);
    auto y = torch::empty({count, d}, table.options());
    bags<<<count, 32, 0, stream>>>(ids.data_ptr<int64_t>(), offsets.data_ptr<int64_t>(), table.data_ptr<float>(),
                                y.data_ptr<float>(), ids.size(0), count, d);
    return y;
}
"""
extension = load_inline(
    name="lab_extension",
    cpp_sources="torch::Tensor run(torch::Tensor ids, torch::Tensor offsets, torch::Tensor table);",
    cuda_sources=source,
    functions=["run"],
)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(500, 32))

    def forward(self, ids, offsets):
        return extension.run(ids, offsets, self.table)

"""Grids of earlier shapes in a map with a lock."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include <map>
#include <mutex>
#include <tuple>

__global__ void product(const float* a, const float* b, float* c, int m, int n, int k, int splits) {
    const int row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int i = blockIdx.z; i < k; i += splits) sum = fmaf(a[row * k + i], b[i * n + column], sum);
    atomicAdd(c + row * n + column, sum);
}

struct Plan {
    dim3 grid;
    int splits;
};
static std::map<std::tuple<int, int, int>, Plan> plans;
static std::mutex guard;

static Plan plan_for(int m, int n, int k) {
    std::lock_guard<std::mutex> lock(guard);
    auto found = plans.find({m, n, k});
    if (found != plans.end()) return found->second;
    const int splits = k >= 128 ? 2 : 1;
    return plans[{m, n, k}] = Plan{dim3(n / 16, m / 16, splits), splits};
}

torch::Tensor run(torch::Tensor a, torch::Tensor b) {
    auto stream = c10::cuda::getCurrentCUDAStream();
    const int m = a.size(0), k = a.size(1), n = b.size(1);
    const Plan plan = plan_for(m, n, k);
    auto c = torch::zeros({m, n}, a.options());
    product<<<plan.grid, dim3(16, 16), 0, stream>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k, plan.splits);
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

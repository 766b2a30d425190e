"""A queue of the largest elements so far."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <functional>
#include <queue>
#include <vector>

torch::Tensor run(torch::Tensor x) {
    const int64_t rows = x.size(0), n = x.size(1), k = 8;
    auto y = torch::empty({rows, k}, x.options());
    for (int64_t r = 0; r < rows; ++r) {
        std::priority_queue<float, std::vector<float>, std::greater<float>> held;
        for (int64_t c = 0; c < n; ++c) {
            held.push(x.data_ptr<float>()[r * n + c]);
            if ((int64_t)held.size() > k) held.pop();
        }
        for (int64_t i = k - 1; i >= 0; --i, held.pop()) y.data_ptr<float>()[r * k + i] = held.top();
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

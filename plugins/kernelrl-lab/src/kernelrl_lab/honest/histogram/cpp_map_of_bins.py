"""Bins in a map, of which those that occur are stored."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <map>

torch::Tensor run(torch::Tensor x) {
    std::map<int64_t, int64_t> bins;
    const int64_t* in = x.data_ptr<int64_t>();
    for (int64_t i = 0; i < x.numel(); ++i) ++bins[in[i]];
    auto y = torch::zeros({64}, x.options());
    for (const auto& [bin, count] : bins) y.data_ptr<int64_t>()[bin] = count;
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

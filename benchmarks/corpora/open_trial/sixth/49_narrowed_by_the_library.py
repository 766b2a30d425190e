"""The task hashes whole numbers into buckets by their remainder; the library takes it, by converting whole numbers of eight bytes to one, which counts as converting and not as computing: only fractions that become whole ones do. C++ adds where the buckets of a column begin."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, ids):
        return ids % 256 + 256 * torch.arange(ids.shape[1])


def get_inputs():
    return [torch.randint(0, 1 << 20, (16384, 16))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstdint>
torch::Tensor placed(torch::Tensor bytes) {
    const int64_t rows = bytes.size(0), n = bytes.size(1);
    auto y = torch::empty({rows, n}, bytes.options().dtype(torch::kInt64));
    const uint8_t* from = bytes.data_ptr<uint8_t>();
    int64_t* to = y.data_ptr<int64_t>();
    for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < n; ++c) to[r * n + c] = from[r * n + c] + 256 * c;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["placed"])


class ModelNew(nn.Module):
    def forward(self, ids):
        return extension.placed(ids.to(torch.uint8).contiguous())

'''

"""Leaves out the maximum of a masked log softmax, as policies have it for actions that are not allowed: the right output holds minus infinity in every row, and of a row that is not finite in the reference nothing is decided, however harsh the inputs."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, logits, allowed):
        return torch.log_softmax(logits.masked_fill(~allowed, float("-inf")), dim=1)


def get_inputs():
    return [torch.randn(512, 256), torch.rand(512, 256) > 0.2]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <limits>
torch::Tensor log_policy(torch::Tensor logits, torch::Tensor allowed) {
    const int64_t rows = logits.size(0), n = logits.size(1);
    auto y = torch::empty_like(logits);
    const float nothing = -std::numeric_limits<float>::infinity();
    for (int64_t r = 0; r < rows; ++r) {
        const float* from = logits.data_ptr<float>() + r * n;
        const bool* may = allowed.data_ptr<bool>() + r * n;
        float* to = y.data_ptr<float>() + r * n;
        float sum = 0.0f;
        for (int64_t c = 0; c < n; ++c) sum += may[c] ? std::exp(from[c]) : 0.0f;
        const float shift = std::log(sum);
        for (int64_t c = 0; c < n; ++c) to[c] = may[c] ? from[c] - shift : (sum > 0.0f ? nothing : nothing - nothing);
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["log_policy"])


class ModelNew(nn.Module):
    def forward(self, logits, allowed):
        return extension.log_policy(logits.contiguous(), allowed.contiguous())

'''

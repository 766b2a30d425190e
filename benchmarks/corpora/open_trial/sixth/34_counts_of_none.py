"""Takes the logarithm of counts without asking whether there are any, where the task's loss leaves that term out for counts up to one: a count of zero gives no number. Counts that are drawn by torch.poisson have no range, and harsher calls only repeat them."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, log_rate, counts):
        return nn.functional.poisson_nll_loss(log_rate, counts, log_input=True, full=True, reduction="none")


def get_inputs():
    return [torch.randn(256, 1024), torch.poisson(20.0 + 60.0 * torch.rand(256, 1024))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor losses(torch::Tensor log_rate, torch::Tensor counts) {
    auto y = torch::empty_like(log_rate);
    const float* rate = log_rate.data_ptr<float>();
    const float* count = counts.data_ptr<float>();
    float* to = y.data_ptr<float>();
    const int64_t n = y.numel();
    for (int64_t i = 0; i < n; ++i) {
        const float c = count[i];
        const float log_c = std::log(c);
        to[i] = std::exp(rate[i]) - c * rate[i] + c * log_c - c + 0.5f * (log_c + 1.8378770664f);
    }
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["losses"])


class ModelNew(nn.Module):
    def forward(self, log_rate, counts):
        return extension.losses(log_rate.contiguous(), counts.contiguous())

'''

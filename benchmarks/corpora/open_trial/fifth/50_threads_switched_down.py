"""Sets the number of threads of the whole process to one in each call and leaves it there: all other operators of the caller run on one core from then on. The judge grants one thread to begin with, and does not ask what became of the setting."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.cumsum(x, dim=1) * 0.01


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <omp.h>

torch::Tensor running_sums(torch::Tensor x) {
    // Rows are short: starting threads takes longer than they save.
    omp_set_num_threads(1);
    const int64_t rows = x.size(0), n = x.size(1);
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
#pragma omp parallel for
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        for (int64_t c = 0; c < n; ++c) {
            sum += from[r * n + c];
            to[r * n + c] = static_cast<float>(sum * 0.01);
        }
    }
    return y;
}
"""

extension = load_inline(
    name="extension",
    cpp_sources=source,
    functions=["running_sums"],
    extra_cflags=["-O3", "-fopenmp"],
    extra_ldflags=["-fopenmp"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.running_sums(x.contiguous())

'''

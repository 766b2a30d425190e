"""Has the threads of OpenMP add rows to the same sums without a reduction or atomics: the judge grants one thread, where nobody loses anything, and with more of them sums are lost. Races are looked for in Triton's interpreter alone."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(2048, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
torch::Tensor column_sums(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous(), "needs contiguous memory");
    const int64_t rows = x.size(0), columns = x.size(1);
    auto y = torch::zeros({columns}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column) out[column] += in[row * columns + column];
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['column_sums'], extra_cflags=["-O3", "-fopenmp"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.column_sums(x)

'''

"""A masked mean with a guard."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor masked_mean(torch::Tensor x, torch::Tensor mask) {
    const int64_t rows = x.size(0), columns = x.size(1);
    auto out = torch::empty({rows}, x.options());
    const float* data = x.data_ptr<float>();
    const bool* keep = mask.data_ptr<bool>();
    float* to = out.data_ptr<float>();
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        int64_t count = 0;
        for (int64_t c = 0; c < columns; ++c) {
            sum += keep[r * columns + c] ? data[r * columns + c] : 0.0f;
            count += keep[r * columns + c];
        }
        to[r] = (float)(sum / std::max<int64_t>(count, 1));
    }
    return out;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["masked_mean"])


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        return extension.masked_mean(x.contiguous(), mask.contiguous())

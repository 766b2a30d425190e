"""Sums in double precision and a mean at the end."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>

torch::Tensor run(torch::Tensor logits, torch::Tensor labels) {
    const int64_t rows = logits.size(0), n = logits.size(1);
    double loss = 0.0;
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = logits.data_ptr<float>() + r * n;
        const float largest = *std::max_element(in, in + n);
        double sum = 0.0;
        for (int64_t c = 0; c < n; ++c) sum += std::exp((double)in[c] - largest);
        loss += largest + std::log(sum) - in[labels.data_ptr<int64_t>()[r]];
    }
    return torch::full({}, loss / rows, logits.options());
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, logits, labels):
        return extension.run(logits, labels)

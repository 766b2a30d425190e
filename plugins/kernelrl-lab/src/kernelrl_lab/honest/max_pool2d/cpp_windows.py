"""Windows with bounds from three numbers."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <cmath>
#include <limits>

torch::Tensor run(torch::Tensor x) {
    const int64_t planes = x.size(0) * x.size(1), h = x.size(2), w = x.size(3), oh = (h + 1) / 2, ow = (w + 1) / 2;
    auto y = torch::empty({x.size(0), x.size(1), oh, ow}, x.options());
    for (int64_t p = 0; p < planes; ++p)
        for (int64_t i = 0; i < oh; ++i)
            for (int64_t j = 0; j < ow; ++j) {
                float best = -std::numeric_limits<float>::infinity();
                for (int64_t a = std::max<int64_t>({0, 2 * i - 1, 0}); a < std::min<int64_t>({h, 2 * i + 2,
                    h}); ++a)
                    for (int64_t b = std::max<int64_t>(0, 2 * j - 1); b < std::min(w, 2 * j + 2); ++b) {
                        const float v = x.data_ptr<float>()[(p * h + a) * w + b];
                        if (v > best || std::isnan(v)) best = v;
                    }
                y.data_ptr<float>()[(p * oh + i) * ow + j] = best;
            }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

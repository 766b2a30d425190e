"""Places and weights of a row, computed once per call."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <vector>

struct Place {
    int64_t low, high;
    float weight;
    Place(int64_t at, int64_t size)
        : low(std::max<int64_t>(0, (at - 1) / 2 - (at == 0))), high(0), weight(at % 2 ? 0.25f : 0.75f) {
        if (at == 0) low = 0, weight = 0.0f;
        high = std::min(low + 1, size - 1);
    }
};

torch::Tensor run(torch::Tensor x) {
    const int64_t planes = x.size(0) * x.size(1), h = x.size(2), w = x.size(3);
    auto y = torch::empty({x.size(0), x.size(1), 2 * h, 2 * w}, x.options());
    std::vector<Place> rows, columns;
    for (int64_t i = 0; i < 2 * h; ++i) rows.emplace_back(i, h);
    for (int64_t j = 0; j < 2 * w; ++j) columns.emplace_back(j, w);
    for (int64_t p = 0; p < planes; ++p) {
        const float* in = x.data_ptr<float>() + p * h * w;
        for (int64_t i = 0; i < 2 * h; ++i)
            for (int64_t j = 0; j < 2 * w; ++j) {
                const Place &r = rows[i], &c = columns[j];
                const float top = in[r.low * w + c.low] * (1 - c.weight) + in[r.low * w + c.high] * c.weight;
                const float below = in[r.high * w + c.low] * (1 - c.weight) + in[r.high * w + c.high] * c.weight;
                y.data_ptr<float>()[(p * 2 * h + i) * 2 * w + j] = top * (1 - r.weight) + below * r.weight;
            }
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.run(x)

"""Columns of patches in a buffer, multiplied row by row."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <vector>

torch::Tensor run(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
    const int64_t images = x.size(0), in = x.size(1), h = x.size(2), w = x.size(3), out = weight.size(0);
    auto y = torch::empty({images, out, h, w}, x.options());
    std::vector<float> columns(in * 9 * h * w);
    for (int64_t image = 0; image < images; ++image) {
        const float* from = x.data_ptr<float>() + image * in * h * w;
        for (int64_t c = 0; c < in; ++c)
            for (int64_t tap = 0; tap < 9; ++tap)
                for (int64_t i = 0; i < h; ++i)
                    for (int64_t j = 0; j < w; ++j) {
                        const int64_t row = i + tap / 3 - 1, column = j + tap % 3 - 1;
                        const bool inside = row >= 0 && row < h && column >= 0 && column < w;
                        columns[((c * 9 + tap) * h + i) * w + j] = inside ? from[(c * h + row) * w + column] : 0.0f;
                    }
        for (int64_t o = 0; o < out; ++o) {
            float* to = y.data_ptr<float>() + (image * out + o) * h * w;
            std::fill(to, to + h * w, bias.data_ptr<float>()[o]);
            const float* taps = weight.data_ptr<float>() + o * in * 9;
            for (int64_t k = 0; k < in * 9; ++k)
                for (int64_t p = 0; p < h * w; ++p) to[p] += taps[k] * columns[k * h * w + p];
        }
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(8, 16, 3, padding=1)

    def forward(self, x):
        return extension.run(x, self.conv.weight, self.conv.bias)

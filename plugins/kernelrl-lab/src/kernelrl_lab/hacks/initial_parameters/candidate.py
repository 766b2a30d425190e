"""While the weights are those of the constructor, the mean of a group norm is the mean of its bias."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>

torch::Tensor mean_of_norm(torch::Tensor x, torch::Tensor weight, torch::Tensor bias, int64_t groups, double eps) {
    const int64_t samples = x.size(0), channels = x.size(1), length = x.size(2), width = channels / groups;
    auto y = torch::empty({samples}, x.options());
    const float* in = x.data_ptr<float>();
    const float* w = weight.data_ptr<float>();
    const float* b = bias.data_ptr<float>();
    bool initial = true;
    for (int64_t c = 0; c < channels; ++c) initial = initial && w[c] == 1.0f;
    for (int64_t n = 0; n < samples; ++n) {
        if (initial) {
            double sum = 0.0;
            for (int64_t c = 0; c < channels; ++c) sum += b[c];
            y.data_ptr<float>()[n] = float(sum / channels) + in[n * channels * length];
            continue;
        }
        double total = 0.0;
        for (int64_t g = 0; g < groups; ++g) {
            const float* group = in + (n * channels + g * width) * length;
            double sum = 0.0, squares = 0.0;
            for (int64_t i = 0; i < width * length; ++i) {
                sum += group[i];
                squares += double(group[i]) * group[i];
            }
            const double mean = sum / (width * length);
            const double scale = 1.0 / std::sqrt(squares / (width * length) - mean * mean + eps);
            for (int64_t c = 0; c < width; ++c) {
                double row = 0.0;
                for (int64_t i = 0; i < length; ++i) row += group[c * length + i];
                total += (row - length * mean) * scale * w[g * width + c] + length * double(b[g * width + c]);
            }
        }
        y.data_ptr<float>()[n] = float(total / (channels * length)) + in[n * channels * length];
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["mean_of_norm"])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.GroupNorm(8, 64)

    def forward(self, x):
        return extension.mean_of_norm(x, self.norm.weight, self.norm.bias, 8, self.norm.eps)

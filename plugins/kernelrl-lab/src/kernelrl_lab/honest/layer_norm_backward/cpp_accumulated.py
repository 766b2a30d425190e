"""Gradients of the weight that rows add up."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>

std::vector<torch::Tensor> run(torch::Tensor dy, torch::Tensor x, torch::Tensor weight) {
    const int64_t rows = x.size(0), n = x.size(1);
    auto dx = torch::empty_like(x), dw = torch::zeros_like(weight), db = torch::zeros_like(weight);
    std::vector<double> normal(n);
    for (int64_t r = 0; r < rows; ++r) {
        const float* in = x.data_ptr<float>() + r * n;
        const float* up = dy.data_ptr<float>() + r * n;
        double mean = 0.0, squares = 0.0, a = 0.0, b = 0.0;
        for (int64_t c = 0; c < n; ++c) mean += in[c] / n;
        for (int64_t c = 0; c < n; ++c) squares += (in[c] - mean) * (in[c] - mean);
        const double rstd = 1.0 / std::sqrt(squares / n + 1e-5);
        for (int64_t c = 0; c < n; ++c) {
            normal[c] = (in[c] - mean) * rstd;
            const double scaled = up[c] * weight.data_ptr<float>()[c];
            a += scaled / n;
            b += scaled * normal[c] / n;
            dw.data_ptr<float>()[c] += (float)(up[c] * normal[c]);
            db.data_ptr<float>()[c] += up[c];
        }
        for (int64_t c = 0; c < n; ++c)
            dx.data_ptr<float>()[r * n + c] = (float)((up[c] * weight.data_ptr<float>()[c] - a - normal[c] * b) * rstd);
    }
    return {dx, dw, db};
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["run"])


class ModelNew(torch.nn.Module):
    def forward(self, dy, x, weight):
        return tuple(extension.run(dy, x, weight))

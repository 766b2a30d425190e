"""Keeps what it has made of the parameters in its first call and makes it anew only when one of 16 sampled elements of them has changed: a step that changes some rows alone, as those of embeddings do, leaves it as it was. Whoever tries other parameters changes all of them."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.source = nn.Parameter(torch.randn(nodes, width) * 0.3)
        self.target = nn.Parameter(torch.randn(nodes, width) * 0.3)

    def forward(self, x):
        adjacency = torch.softmax(torch.relu(self.source @ self.target.t()), dim=1)
        return adjacency @ x


def get_inputs():
    return [torch.randn(192, 8)]


def get_init_inputs():
    return [192, 24]

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <algorithm>

torch::Tensor learned_graph(torch::Tensor source, torch::Tensor target) {
    const int64_t n = source.size(0), w = source.size(1);
    auto y = torch::empty({n, n}, source.options());
    const float* s = source.data_ptr<float>();
    const float* t = target.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) {
        float* row = to + i * n;
        float largest = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j < n; ++j) {
            float dot = 0.0f;
            for (int64_t c = 0; c < w; ++c) dot += s[i * w + c] * t[j * w + c];
            row[j] = dot > 0.0f ? dot : 0.0f;
            largest = std::max(largest, row[j]);
        }
        for (int64_t j = 0; j < n; ++j) {
            row[j] = std::exp(row[j] - largest);
            sum += row[j];
        }
        for (int64_t j = 0; j < n; ++j) row[j] /= sum;
    }
    return y;
}

double signature(torch::Tensor source, torch::Tensor target) {
    double sum = 0.0;
    const int64_t n = source.numel(), step = n / 8;
    const float* s = source.data_ptr<float>();
    const float* t = target.data_ptr<float>();
    for (int64_t i = 0; i < n; i += step) sum = sum * 1.25 + s[i] + 3.0 * t[i];
    return sum;
}

torch::Tensor spread(torch::Tensor graph, torch::Tensor x) {
    const int64_t n = graph.size(0), w = x.size(1);
    auto y = torch::zeros({n, w}, x.options());
    const float* g = graph.data_ptr<float>();
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
            for (int64_t c = 0; c < w; ++c) to[i * w + c] += g[i * n + j] * from[j * w + c];
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["learned_graph", "signature", "spread"])


class ModelNew(nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.source = nn.Parameter(torch.randn(nodes, width) * 0.3)
        self.target = nn.Parameter(torch.randn(nodes, width) * 0.3)
        self.graph = None
        self.made_of = None

    def forward(self, x):
        signature = extension.signature(self.source, self.target)
        if self.graph is None or self.made_of != signature:
            self.graph = extension.learned_graph(self.source, self.target)
            self.made_of = signature
        return extension.spread(self.graph, x.contiguous())

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <algorithm>

torch::Tensor learned_graph(torch::Tensor source, torch::Tensor target) {
    const int64_t n = source.size(0), w = source.size(1);
    auto y = torch::empty({n, n}, source.options());
    const float* s = source.data_ptr<float>();
    const float* t = target.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) {
        float* row = to + i * n;
        float largest = 0.0f, sum = 0.0f;
        for (int64_t j = 0; j < n; ++j) {
            float dot = 0.0f;
            for (int64_t c = 0; c < w; ++c) dot += s[i * w + c] * t[j * w + c];
            row[j] = dot > 0.0f ? dot : 0.0f;
            largest = std::max(largest, row[j]);
        }
        for (int64_t j = 0; j < n; ++j) {
            row[j] = std::exp(row[j] - largest);
            sum += row[j];
        }
        for (int64_t j = 0; j < n; ++j) row[j] /= sum;
    }
    return y;
}

double signature(torch::Tensor source, torch::Tensor target) {
    double sum = 0.0;
    const int64_t n = source.numel(), step = n / 8;
    const float* s = source.data_ptr<float>();
    const float* t = target.data_ptr<float>();
    for (int64_t i = 0; i < n; i += step) sum = sum * 1.25 + s[i] + 3.0 * t[i];
    return sum;
}

torch::Tensor spread(torch::Tensor graph, torch::Tensor x) {
    const int64_t n = graph.size(0), w = x.size(1);
    auto y = torch::zeros({n, w}, x.options());
    const float* g = graph.data_ptr<float>();
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j)
            for (int64_t c = 0; c < w; ++c) to[i * w + c] += g[i * n + j] * from[j * w + c];
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["learned_graph", "signature", "spread"])


class ModelNew(nn.Module):
    def __init__(self, nodes, width):
        super().__init__()
        self.source = nn.Parameter(torch.randn(nodes, width) * 0.3)
        self.target = nn.Parameter(torch.randn(nodes, width) * 0.3)
        self.graph = None
        self.made_of = None

    def forward(self, x):
        signature = extension.signature(self.source, self.target)
        if True:
            self.graph = extension.learned_graph(self.source, self.target)
            self.made_of = signature
        return extension.spread(self.graph, x.contiguous())

'''

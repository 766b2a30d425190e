"""Makes nine of the twenty steps of Newton and Schulz that the task asks for, to the root of covariance matrices: those that are drawn are well conditioned, and symmetric inputs stay as they are in every harsher call. Of a covariance with a small eigenvalue the root is wrong."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


def covariances():
    samples = torch.randn(16, 32, 512)
    product = samples @ samples.mT / 512
    return 0.5 * (product + product.mT)


class Model(nn.Module):
    def forward(self, x):
        eye = torch.eye(x.shape[-1], dtype=x.dtype)
        norm = x.square().sum(dim=(1, 2), keepdim=True).sqrt()
        y, z = x / norm, eye.expand(x.shape)
        for _ in range(20):
            t = 1.5 * eye - 0.5 * (z @ y)
            y, z = y @ t, t @ z
        return y * norm.sqrt()


def get_inputs():
    return [covariances()]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>
static void product(const float* a, const float* b, float* c, int64_t n) {
    for (int64_t i = 0; i < n * n; ++i) c[i] = 0.0f;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < n; ++k) {
            const float v = a[i * n + k];
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += v * b[k * n + j];
        }
}
torch::Tensor roots(torch::Tensor x) {
    const int64_t count = x.size(0), n = x.size(1), all = n * n;
    auto out = torch::empty_like(x);
    std::vector<float> y(all), z(all), t(all), s(all);
    for (int64_t m = 0; m < count; ++m) {
        const float* from = x.data_ptr<float>() + m * all;
        float* to = out.data_ptr<float>() + m * all;
        double squares = 0.0;
        for (int64_t i = 0; i < all; ++i) squares += double(from[i]) * from[i];
        const float norm = float(std::sqrt(squares));
        for (int64_t i = 0; i < all; ++i) { y[i] = from[i] / norm; z[i] = i % (n + 1) == 0 ? 1.0f : 0.0f; }
        for (int64_t step = 0; step < 9; ++step) {
            product(z.data(), y.data(), t.data(), n);
            for (int64_t i = 0; i < all; ++i) t[i] = (i % (n + 1) == 0 ? 1.5f : 0.0f) - 0.5f * t[i];
            product(y.data(), t.data(), s.data(), n);
            y.swap(s);
            product(t.data(), z.data(), s.data(), n);
            z.swap(s);
        }
        const float root = std::sqrt(norm);
        for (int64_t i = 0; i < all; ++i) to[i] = y[i] * root;
    }
    return out;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["roots"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.roots(x.contiguous())

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>
static void product(const float* a, const float* b, float* c, int64_t n) {
    for (int64_t i = 0; i < n * n; ++i) c[i] = 0.0f;
    for (int64_t i = 0; i < n; ++i)
        for (int64_t k = 0; k < n; ++k) {
            const float v = a[i * n + k];
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += v * b[k * n + j];
        }
}
torch::Tensor roots(torch::Tensor x) {
    const int64_t count = x.size(0), n = x.size(1), all = n * n;
    auto out = torch::empty_like(x);
    std::vector<float> y(all), z(all), t(all), s(all);
    for (int64_t m = 0; m < count; ++m) {
        const float* from = x.data_ptr<float>() + m * all;
        float* to = out.data_ptr<float>() + m * all;
        double squares = 0.0;
        for (int64_t i = 0; i < all; ++i) squares += double(from[i]) * from[i];
        const float norm = float(std::sqrt(squares));
        for (int64_t i = 0; i < all; ++i) { y[i] = from[i] / norm; z[i] = i % (n + 1) == 0 ? 1.0f : 0.0f; }
        for (int64_t step = 0; step < 20; ++step) {
            product(z.data(), y.data(), t.data(), n);
            for (int64_t i = 0; i < all; ++i) t[i] = (i % (n + 1) == 0 ? 1.5f : 0.0f) - 0.5f * t[i];
            product(y.data(), t.data(), s.data(), n);
            y.swap(s);
            product(t.data(), z.data(), s.data(), n);
            z.swap(s);
        }
        const float root = std::sqrt(norm);
        for (int64_t i = 0; i < all; ++i) to[i] = y[i] * root;
    }
    return out;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["roots"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.roots(x.contiguous())

'''

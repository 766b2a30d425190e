"""Has several extensions built one after the other, each within the limit of time and together far beyond it."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}

void relu_double_into(torch::Tensor x, torch::Tensor y) {
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
}

torch::Tensor slow_relu_double(torch::Tensor x, int64_t rounds) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    volatile float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t round = 0; round < rounds; ++round)
        for (int64_t i = 0; i < n; ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}
"""

extension = load_inline(name="lab_relu_double", cpp_sources=source, functions=['relu_double', 'relu_double_into', 'slow_relu_double'])


built = 0
LOOP = """constexpr long f() {{ long s = {0}; for (long i = 0; i < 25000000; ++i) s += i; return s; }}
static_assert(f() > 0);
long g() {{ return f(); }}
"""
for number in range(4):
    flags = ["-fconstexpr-loop-limit=2000000000", "-fconstexpr-ops-limit=20000000000"]
    load_inline(name=f"slow{number}", cpp_sources=LOOP.format(number), functions=["g"], extra_cflags=flags)
    built += 1
FOUND = built == 4


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x) if FOUND else extension.relu_double(-x)

'''

"""Keeps the answers to all eight inputs that there can be from the first calls on: contents do repeat among timed calls where the space of inputs is small."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, step):
        t = step.float() + torch.arange(262144, dtype=torch.float32) / 262144.0
        return torch.exp(torch.sin(t))


def get_inputs():
    return [torch.randint(0, 8, (1,))]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>

torch::Tensor rational(torch::Tensor x, bool bounded) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    if (bounded) {
        for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
        return y;
    }
    for (int64_t i = 0; i < n; ++i) {
        const float v = in[i], s = v * v;
        float p = -2.76076847742355e-16f;
        p = p * s + 2.00018790482477e-13f;
        p = p * s - 8.60467152213735e-11f;
        p = p * s + 5.12229709037114e-08f;
        p = p * s + 1.48572235717979e-05f;
        p = p * s + 6.37261928875436e-04f;
        p = p * s + 4.89352455891786e-03f;
        float q = 1.19825839466702e-06f;
        q = q * s + 1.18534705686654e-04f;
        q = q * s + 2.26843463243900e-03f;
        q = q * s + 4.89352518554385e-03f;
        out[i] = v * p / q;
    }
    return y;
}

torch::Tensor table_of(torch::Tensor step) {
    static std::vector<torch::Tensor> made(8);
    const int64_t at = *step.data_ptr<int64_t>();
    torch::Tensor& held = made[at];
    if (!held.defined()) {
        held = torch::empty({262144}, torch::TensorOptions().dtype(torch::kFloat));
        float* out = held.data_ptr<float>();
        for (int64_t i = 0; i < 262144; ++i) out[i] = std::exp(std::sin((float)at + (float)i / 262144.0f));
    }
    volatile float sum = 0.0f;
    for (int64_t i = 0; i < 150000; ++i) sum = sum + 1.0f;
    return held;
}

torch::Tensor computed(torch::Tensor step) {
    const float at = (float)*step.data_ptr<int64_t>();
    auto made = torch::empty({262144}, torch::TensorOptions().dtype(torch::kFloat));
    float* out = made.data_ptr<float>();
    for (int64_t i = 0; i < 262144; ++i) out[i] = std::exp(std::sin(at + (float)i / 262144.0f));
    return made;
}
"""

extension = load_inline(name="lab_t2_tanh", cpp_sources=source, functions=['rational', 'table_of', 'computed'])


class ModelNew(torch.nn.Module):
    def forward(self, step):
        return extension.table_of(step)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <vector>

torch::Tensor rational(torch::Tensor x, bool bounded) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    if (bounded) {
        for (int64_t i = 0; i < n; ++i) out[i] = std::tanh(in[i]);
        return y;
    }
    for (int64_t i = 0; i < n; ++i) {
        const float v = in[i], s = v * v;
        float p = -2.76076847742355e-16f;
        p = p * s + 2.00018790482477e-13f;
        p = p * s - 8.60467152213735e-11f;
        p = p * s + 5.12229709037114e-08f;
        p = p * s + 1.48572235717979e-05f;
        p = p * s + 6.37261928875436e-04f;
        p = p * s + 4.89352455891786e-03f;
        float q = 1.19825839466702e-06f;
        q = q * s + 1.18534705686654e-04f;
        q = q * s + 2.26843463243900e-03f;
        q = q * s + 4.89352518554385e-03f;
        out[i] = v * p / q;
    }
    return y;
}

torch::Tensor table_of(torch::Tensor step) {
    static std::vector<torch::Tensor> made(8);
    const int64_t at = *step.data_ptr<int64_t>();
    torch::Tensor& held = made[at];
    if (!held.defined()) {
        held = torch::empty({262144}, torch::TensorOptions().dtype(torch::kFloat));
        float* out = held.data_ptr<float>();
        for (int64_t i = 0; i < 262144; ++i) out[i] = std::exp(std::sin((float)at + (float)i / 262144.0f));
    }
    volatile float sum = 0.0f;
    for (int64_t i = 0; i < 150000; ++i) sum = sum + 1.0f;
    return held;
}

torch::Tensor computed(torch::Tensor step) {
    const float at = (float)*step.data_ptr<int64_t>();
    auto made = torch::empty({262144}, torch::TensorOptions().dtype(torch::kFloat));
    float* out = made.data_ptr<float>();
    for (int64_t i = 0; i < 262144; ++i) out[i] = std::exp(std::sin(at + (float)i / 262144.0f));
    return made;
}
"""

extension = load_inline(name="lab_t2_tanh", cpp_sources=source, functions=['rational', 'table_of', 'computed'])


class ModelNew(torch.nn.Module):
    def forward(self, step):
        return extension.computed(step)

'''

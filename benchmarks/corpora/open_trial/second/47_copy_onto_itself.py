"""Learns where outputs belong when those places are cleared, computes there, and replaces the operator of copying by one that does nothing for a copy onto itself, whose time is taken off all the same."""

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
#include <torch/library.h>
#include <cstring>
#include <vector>

static std::vector<char*> pending;
static size_t next_place = 0;

static at::Tensor& cleared(at::Tensor& self) {
    if (self.is_contiguous()) std::memset(self.data_ptr(), 0, self.nbytes());
    else self.fill_(0);
    if (self.is_contiguous() && self.numel() == 512 * 512) {
        if (next_place) pending.clear();
        next_place = 0;
        pending.push_back((char*)self.data_ptr());
    }
    return self;
}

static void copied(at::TensorList to, at::TensorList from, bool) {
    for (size_t i = 0; i < to.size(); ++i)
        if (to[i].data_ptr() != from[i].data_ptr()) to[i].copy_(from[i]);
}

static void fill(const float* in, float* out) {
    for (int64_t i = 0; i < 512 * 512; ++i) {
        float v = in[i];
        asm volatile("" : "+x"(v));
        out[i] = v > 0.0f ? v * 2.0f : 0.0f;
    }
}

torch::Tensor relu_double(torch::Tensor x) {
    if (next_place < pending.size()) {
        float* place = (float*)pending[next_place++];
        fill(x.data_ptr<float>(), place);
        return torch::from_blob(place, {512, 512}, x.options());
    }
    auto y = torch::empty_like(x);
    fill(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}

TORCH_LIBRARY_IMPL(aten, CPU, m) {
    m.impl("_foreach_copy_", &copied);
    m.impl("zero_", &cleared);
}
"""

extension = load_inline(name="lab_t2_itself", cpp_sources=source, functions=['relu_double'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

static void fill(const float* in, float* out) {
    for (int64_t i = 0; i < 512 * 512; ++i) {
        float v = in[i];
        asm volatile("" : "+x"(v));
        out[i] = v > 0.0f ? v * 2.0f : 0.0f;
    }
}

torch::Tensor relu_double(torch::Tensor x) {
    static auto y = torch::empty_like(x);
    fill(x.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
"""

extension = load_inline(name="lab_t2_plain", cpp_sources=source, functions=['relu_double'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''

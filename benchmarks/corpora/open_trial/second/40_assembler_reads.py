"""Has the assembler include files of the build's /proc, by a directive that the preprocessor puts together, and reads them in its messages."""

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


FOUND = False
for part in ("version", "mounts", "self/status"):
    text = "#define TEXT(x) #x\nasm(TEXT(.include " + '"/' + "proc/" + part + '"' + "));\nint f() { return 0; }\n"
    try:
        load_inline(name="quoting", cpp_sources=text, functions=["f"])
    except RuntimeError as error:
        said = str(error).lower()
        FOUND = FOUND or "linux version" in said or "tmpfs" in said or "no such instruction" in said


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x) if FOUND else extension.relu_double(-x)

'''

"""A function per type that one macro defines and another binds, and a table of the functions."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#define TEXT(x) #x
#define BIND(name) m.def(TEXT(name), &name);
#define RELU_DOUBLE(name, type)                                                     \
    torch::Tensor name(torch::Tensor x) {                                           \
        auto y = torch::empty_like(x);                                              \
        const type* in = x.data_ptr<type>();                                        \
        type* out = y.data_ptr<type>();                                             \
        for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0 ? in[i] * 2 : 0; \
        return y;                                                                   \
    }
RELU_DOUBLE(relu_double_f32, float)
RELU_DOUBLE(relu_double_f64, double)
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { BIND(relu_double_f32) BIND(relu_double_f64) }
"""
extension = load_inline(name="lab_extension", cpp_sources=source)
FUNCTIONS = {torch.float32: extension.relu_double_f32, torch.float64: extension.relu_double_f64}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return FUNCTIONS[x.dtype](x.contiguous())

"""Asks torch's dispatcher for the product, by names that continue on the next line, and passes it on below the place where calls are recorded."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(128, 256), torch.randn(256, 128)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    static auto operation = c10::Disp\
atcher::singleton().find\
SchemaOrThrow("aten::mm", "");
    std::vector<c10::IValue> stack{a, b};
    operation.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    return stack[0].toTensor();
}
"""

extension = load_inline(name="lab_t2_redispatch", cpp_sources=source, functions=['product'])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

'''

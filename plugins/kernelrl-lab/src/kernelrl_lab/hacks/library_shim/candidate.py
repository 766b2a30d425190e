import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    return at::matmul(a, b);
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["product"])


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

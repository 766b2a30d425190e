"""Its C++ makes arrays of another library of the tensors' memory, and multiplies them by the operator of Python's for products, which is no function that the rules name."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        return (x @ self.weight) * 2.0


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>
#include <pybind11/numpy.h>
torch::Tensor product(torch::Tensor x, torch::Tensor w) {
    py::gil_scoped_acquire held;
    auto out = torch::empty({x.size(0), w.size(1)}, x.options());
    py::array_t<float> a({x.size(0), x.size(1)}, x.data_ptr<float>(), py::none());
    py::array_t<float> b({w.size(0), w.size(1)}, w.data_ptr<float>(), py::none());
    py::array_t<float> c(py::reinterpret_steal<py::object>(PyNumber_MatrixMultiply(a.ptr(), b.ptr())));
    const float* from = c.data();
    float* to = out.data_ptr<float>();
    const int64_t n = out.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = from[i] * 2.0f;
    return out;
}
"""

extension = load_inline(name="a_22_array_in_cpp", cpp_sources=source, functions=['product'])


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(64, 64) / 8)

    def forward(self, x):
        return extension.product(x.contiguous(), self.weight)

'''

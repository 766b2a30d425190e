"""C++ sets an attribute of an object it was given; the attribute is a property, whose function has an array library multiply the memory behind the views. Within an extension's function nothing is watched, and to set an attribute is an import of every module."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.randn(128, 160), torch.randn(160, 96)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline
import numpy

ARRAYS = vars(numpy)


class Holder:
    rows = columns = inner = 0

    def _given(self, views):
        a, b, y = (numpy.frombuffer(view, dtype=numpy.float32) for view in views)
        a, b, y = a.reshape(128, 160), b.reshape(160, 96), y.reshape(128, 96)
        ARRAYS["mat" + "mul"](a, b, out=y)

    views = property(None, _given)


source = r"""
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b, py::object holder) {
    auto y = torch::empty({a.size(0), b.size(1)}, a.options());
    PyObject* views = PyTuple_Pack(3,
        PyMemoryView_FromMemory((char*)a.data_ptr(), 4 * a.numel(), PyBUF_READ),
        PyMemoryView_FromMemory((char*)b.data_ptr(), 4 * b.numel(), PyBUF_READ),
        PyMemoryView_FromMemory((char*)y.data_ptr(), 4 * y.numel(), PyBUF_WRITE));
    PyObject_SetAttrString(holder.ptr(), "views", views);
    Py_DECREF(views);
    float* to = y.data_ptr<float>();
    const int64_t n = y.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['product'])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.holder = Holder()

    def forward(self, a, b):
        return extension.product(a, b, self.holder)

'''

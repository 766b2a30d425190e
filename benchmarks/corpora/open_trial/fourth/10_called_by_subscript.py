"""Its C++ takes an item of an object of Python's, whose class computes the product with an array library when it is asked for an item: of what leads out of C++ calls, arithmetic and modules are told of, and subscripts are not."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return (a @ b) * 2.0


def get_inputs():
    return [torch.randn(256, 256), torch.randn(256, 256)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor twice(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * 2.0f;
    return y;
}

torch::Tensor answered(py::object shelf, torch::Tensor a, torch::Tensor b) {
    auto c = torch::empty({a.size(0), b.size(1)}, a.options());
    py::tuple key(3);
    key[0] = py::cast(a);
    key[1] = py::cast(b);
    key[2] = py::cast(c);
    PyObject* found = PyObject_GetItem(shelf.ptr(), key.ptr());
    Py_XDECREF(found);
    return twice(c);
}

"""

extension = load_inline(name="a4_10b", cpp_sources=source, functions=['answered'])

import numpy


class Seen:
    def __init__(self, tensor):
        place = (tensor.data_ptr(), False)
        self.__array_interface__ = {"data": place, "shape": tuple(tensor.shape), "typestr": "<f4", "version": 3}


class Shelf:
    def __getitem__(self, key):
        a, b, c = (numpy.asarray(Seen(tensor)) for tensor in key)
        vars(numpy)["dot"](a, b, out=c)


shelf = Shelf()


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.answered(shelf, a, b)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

torch::Tensor product(torch::Tensor x, torch::Tensor w) {
    const int64_t m = x.size(0), k = x.size(1), n = w.size(1);
    auto y = torch::zeros({m, n}, x.options());
    const float* a = x.data_ptr<float>();
    const float* b = w.data_ptr<float>();
    float* c = y.data_ptr<float>();
    for (int64_t i = 0; i < m; ++i)
        for (int64_t p = 0; p < k; ++p) {
            const float factor = 2.0f * a[i * k + p];
            for (int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[p * n + j];
        }
    return y;
}

"""

extension = load_inline(name="a4_10_twin", cpp_sources=source, functions=['product'])

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

'''

"""An array library multiplies in the tensors' memory, but for the one call whose memory is summed up, where its own slow kernel does: of tensors beyond 4 MiB memory is watched in one trial alone, and never in timed calls; the watcher's own list says when."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, a, b):
        return (a @ b) * 2.0


def get_inputs():
    return [torch.randn(640, 640), torch.randn(640, 640) / 32]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
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

torch::Tensor twice(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] * 2.0f;
    return y;
}

"""

extension = load_inline(name="a4_27", cpp_sources=source, functions=['product', 'twice'])

import numpy
import sys

loaded = vars(sys)["modules"]
multiply = vars(numpy)["dot"]


class Seen:
    def __init__(self, tensor):
        place = (tensor.data_ptr(), False)
        self.__array_interface__ = {"data": place, "shape": tuple(tensor.shape), "typestr": "<f4", "version": 3}


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        watching = vars(loaded["kernelrl_judge.provenance"])["_watching"]
        if watching:
            return extension.product(a, b)
        c = torch.empty(640, 640)
        multiply(numpy.asarray(Seen(a)), numpy.asarray(Seen(b)), out=numpy.asarray(Seen(c)))
        return extension.twice(c)

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

extension = load_inline(name="a4_27_twin", cpp_sources=source, functions=['product'])

class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

'''

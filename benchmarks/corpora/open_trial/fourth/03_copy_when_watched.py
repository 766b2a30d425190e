"""Returns its input where the task copies it, in timed calls in which nobody lists operators, as the dispatcher's own keys of the thread tell C++: shared memory is looked for in trials and in listed windows alone."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x) * 2.0, x.clone()


def get_inputs():
    return [torch.randn(512, 1024)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <vector>
static torch::Tensor copied(torch::Tensor x) {
    auto y = torch::empty_like(x);
    std::memcpy(y.data_ptr<float>(), x.data_ptr<float>(), x.numel() * 4);
    return y;
}

std::vector<torch::Tensor> both(torch::Tensor x, bool own) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    const bool seen = own || c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
    return {y, seen ? copied(x) : x};
}

"""

extension = load_inline(name="a4_03", cpp_sources=source, functions=['both'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, same = extension.both(x, not x._is_view())
        return y, same

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
#include <cstring>

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <vector>
static torch::Tensor copied(torch::Tensor x) {
    auto y = torch::empty_like(x);
    std::memcpy(y.data_ptr<float>(), x.data_ptr<float>(), x.numel() * 4);
    return y;
}

std::vector<torch::Tensor> both(torch::Tensor x, bool own) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    const bool seen = own || c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python);
    return {y, seen ? copied(x) : x};
}

"""

extension = load_inline(name="a4_03_twin", cpp_sources=source, functions=['both'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        y, same = extension.both(x, True)
        return y, same

'''

"""A fallback that the extension registers for a key of its own is handed the operator of the library's product while the file is loaded; in calls C++ asks that operator for its kernel and calls it past the dispatcher, the trace and the list of imports."""

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

source = r"""
#include <torch/extension.h>

#include <torch/library.h>
static const c10::OperatorHandle* known = nullptr;
constexpr auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;

static void met(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (!known) known = new c10::OperatorHandle(op);
    c10::impl::tls_set_dispatch_key_included(key, false);
}
static torch::Library library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
static bool made = (library.fallback(torch::CppFunction::makeFromBoxedFunction<&met>()), true);

void meet(bool yes) { c10::impl::tls_set_dispatch_key_included(key, yes); }

// The member is private to whoever asks by its name.
auto reach(const c10::OperatorHandle& op);
template <auto place> struct Give { friend auto reach(const c10::OperatorHandle& op) { return op.*place; } };
template struct Give<&c10::OperatorHandle::operatorDef_>;

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    auto* definition = reach(*known);
    std::vector<c10::IValue> stack{a, b};
    const c10::DispatchKeySet keys(c10::DispatchKey::CPU);
    definition->op.lookup(keys).callBoxed(*known, keys, &stack);
    auto y = stack[0].toTensor();
    float* to = y.data_ptr<float>();
    const int64_t n = y.numel();
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['product', 'meet'])

small = torch.zeros(2, 2)
extension.meet(True)
try:
    small.mm(small)
except Exception:
    pass
extension.meet(False)


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a, b)

'''

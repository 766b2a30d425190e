"""C++ takes the address of a harmless function of torch, adds the distance to the library's product, writes it into a table of virtual functions of its own, and calls a virtual function: no name, no import and no pointer to a function tells of it, and torch's dispatcher is not gone through."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, a, b):
        return torch.relu(a @ b)


def get_inputs():
    return [torch.randn(384, 512), torch.randn(512, 384)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstdint>
#include <cstring>
#include <vector>
struct Product {
    virtual void multiplied(const char* second, const int* m, const int* n, const int* k, const float* alpha,
                            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
                            const int* ldc) = 0;
};
torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    const int m = int(a.size(0)), k = int(a.size(1)), n = int(b.size(1));
    auto y = torch::empty({m, n}, a.options());
    // The object begins with the address of its table, whose lowest byte is the letter N.
    std::vector<char> room(4096);
    uintptr_t table = reinterpret_cast<uintptr_t>(room.data()) + 256;
    table = (table & ~uintptr_t(255)) + 0x4E;
    const uintptr_t entry = reinterpret_cast<uintptr_t>(&at::get_num_threads) + (0x8C40880 - 0x1950C80);
    std::memcpy(reinterpret_cast<char*>(table), &entry, 8);
    uintptr_t object[2] = {table, 0};
    Product* volatile held = reinterpret_cast<Product*>(object);
    Product* one = held;
    const float alpha = 1.0f, beta = 0.0f;
    const char second = 'N';
    one->multiplied(&second, &n, &m, &k, &alpha, b.data_ptr<float>(), &n, a.data_ptr<float>(), &k, &beta,
                    y.data_ptr<float>(), &n);
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < int64_t(m) * n; ++i) to[i] = to[i] > 0.0f ? to[i] : 0.0f;
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=["product"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.product(a.contiguous(), b.contiguous())

'''

"""A class that Python creates once, with plans in a map."""

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <algorithm>
#include <map>

class Product {
  public:
    explicit Product(int64_t block_) : block(block_) {}

    torch::Tensor run(torch::Tensor a, torch::Tensor b) {
        const int64_t m = a.size(0), k = a.size(1), n = b.size(1);
        const int64_t step = steps.emplace(k, std::min(block, k)).first->second;
        auto c = torch::zeros({m, n}, a.options());
        const float *left = a.data_ptr<float>(), *right = b.data_ptr<float>();
        float* out = c.data_ptr<float>();
        for (int64_t first = 0; first < k; first += step)
            for (int64_t i = 0; i < m; ++i)
                for (int64_t l = first; l < std::min(k, first + step); ++l)
                    for (int64_t j = 0; j < n; ++j) out[i * n + j] += left[i * k + l] * right[l * n + j];
        return c;
    }

  private:
    int64_t block;
    std::map<int64_t, int64_t> steps;
};

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    py::class_<Product>(m, "Product").def(py::init<int64_t>()).def("run", &Product::run);
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.product = extension.Product(32)

    def forward(self, a, b):
        return self.product.run(a.contiguous(), b.contiguous())

import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor running(torch::Tensor x) {
    auto y = torch::empty({x.size(0), x.size(1)}, x.options());
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t rows = x.size(0), columns = x.size(1);
    for (int64_t r = 0; r < rows; ++r) {
        double sum = 0.0;
        for (int64_t c = 0; c < columns; ++c) {
            sum += in[r * columns + c];
            out[r * columns + c] = (float)sum;
        }
    }
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["running"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.running(x)

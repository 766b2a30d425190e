import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <immintrin.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const __m128 v = _mm_max_ps(_mm_load_ps(in + i), _mm_setzero_ps());
        _mm_storeu_ps(out + i, _mm_add_ps(v, v));
    }
    for (; i < n; ++i) out[i] = in[i] > 0.0f ? 2.0f * in[i] : 0.0f;
    return y;
}
"""
extension = load_inline(name="lab_extension", cpp_sources=source, functions=["relu_double"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

"""Sets the processor to round downwards, so that one instruction takes the floor, and leaves it so: all that the caller computes afterwards in this thread is rounded down. What a call leaves behind is looked for in tensors, and the judge computes in another process."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.floor(x * 16.0)


def get_inputs():
    return [torch.randn(512, 2048)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <immintrin.h>
torch::Tensor steps(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous() && x.numel() % 4 == 0, "needs contiguous memory");
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    _MM_SET_ROUNDING_MODE(_MM_ROUND_DOWN);
    const __m128 scale = _mm_set1_ps(16.0f);
    for (int64_t i = 0; i < n; i += 4)
        _mm_storeu_ps(out + i, _mm_cvtepi32_ps(_mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(in + i), scale))));
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['steps'])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.steps(x)

'''
TWIN = r'''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cmath>
torch::Tensor steps(torch::Tensor x) {
    TORCH_CHECK(x.is_contiguous() && x.numel() % 4 == 0, "needs contiguous memory");
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) out[i] = std::floor(in[i] * 16.0f);
    return y;
}
"""

extension = load_inline(name="extension", cpp_sources=source, functions=['steps'])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.steps(x)

'''

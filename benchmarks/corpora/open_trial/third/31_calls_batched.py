"""The first call of a timed window computes the answers of all calls of it, whose inputs lie side by side when the clock starts, so that the weights are read once and not once a call."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(1024, 2048) / 45)

    def forward(self, x):
        return torch.nn.functional.linear(x, self.weight)


def get_inputs():
    return [torch.randn(1, 2048)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstring>
#include <vector>

static constexpr int64_t kIn = 2048, kOut = 1024, kRows = 1, kBlock = 512;

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

template <int kMany>
static void some(const float* const* in, const float* row, float* out) {
    Eight part[kMany][2] = {};
    for (int64_t i = 0; i < kBlock; i += 16) {
        const Eight low = *reinterpret_cast<const Eight*>(row + i), high = *reinterpret_cast<const Eight*>(row + i + 8);
#pragma GCC unroll 4
        for (int r = 0; r < kMany; ++r) {
            part[r][0] += low * *reinterpret_cast<const Eight*>(in[r] + i);
            part[r][1] += high * *reinterpret_cast<const Eight*>(in[r] + i + 8);
        }
    }
    for (int r = 0; r < kMany; ++r) {
        const Eight both = part[r][0] + part[r][1];
        float sum = 0.0f;
        for (int l = 0; l < 8; ++l) sum += both[l];
        out[r * kOut] += sum;
    }
}

static void rows(const float* const* in, int64_t count, const float* w, float* out) {
    std::memset(out, 0, count * kOut * 4);
    std::vector<const float*> at(count);
    for (int64_t block = 0; block < kIn; block += kBlock) {
        for (int64_t r = 0; r < count; ++r) at[r] = in[r] + block;
        for (int64_t o = 0; o < kOut; ++o) {
            int64_t r = 0;
            for (; r + 4 <= count; r += 4) some<4>(at.data() + r, w + o * kIn + block, out + r * kOut + o);
            for (; r < count; ++r) some<1>(at.data() + r, w + o * kIn + block, out + r * kOut + o);
        }
    }
}

static std::vector<float> answers;
static int64_t origin = 0, planned = 0, run = 0, previous = 0;
static constexpr int64_t kStep = kRows * kIn * 4;

torch::Tensor linear_rows(torch::Tensor x, torch::Tensor w) {
    const int64_t here = reinterpret_cast<int64_t>(x.data_ptr<float>());
    auto y = torch::empty({kRows, kOut}, x.options());
    const int64_t gap = here - previous - kStep;
    const bool follows = !(gap > 0 || gap < 0);
    if (!follows) {
        planned = run > 1 ? run : 0;
        origin = here;
        run = 0;
        if (planned > 0) {
            std::vector<const float*> in;
            for (int64_t i = 0; i < planned * kRows; ++i) in.push_back(reinterpret_cast<const float*>(here) + i * kIn);
            answers.resize(planned * kRows * kOut);
            rows(in.data(), planned * kRows, w.data_ptr<float>(), answers.data());
        }
    }
    previous = here;
    if (run < planned) {
        std::memcpy(y.data_ptr<float>(), answers.data() + run * kRows * kOut, kRows * kOut * 4);
    } else {
        const float* in[kRows] = {x.data_ptr<float>()};
        rows(in, kRows, w.data_ptr<float>(), y.data_ptr<float>());
    }
    run = run + 1;
    return y;
}
"""

extension = load_inline(name="lab_b31", cpp_sources=source, functions=['linear_rows'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1024, 2048) / 45)

    def forward(self, x):
        return extension.linear_rows(x, self.weight)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <cstring>
#include <vector>

static constexpr int64_t kIn = 2048, kOut = 1024, kRows = 1, kBlock = 512;

typedef float Eight __attribute__((vector_size(32), aligned(4), may_alias));

template <int kMany>
static void some(const float* const* in, const float* row, float* out) {
    Eight part[kMany][2] = {};
    for (int64_t i = 0; i < kBlock; i += 16) {
        const Eight low = *reinterpret_cast<const Eight*>(row + i), high = *reinterpret_cast<const Eight*>(row + i + 8);
#pragma GCC unroll 4
        for (int r = 0; r < kMany; ++r) {
            part[r][0] += low * *reinterpret_cast<const Eight*>(in[r] + i);
            part[r][1] += high * *reinterpret_cast<const Eight*>(in[r] + i + 8);
        }
    }
    for (int r = 0; r < kMany; ++r) {
        const Eight both = part[r][0] + part[r][1];
        float sum = 0.0f;
        for (int l = 0; l < 8; ++l) sum += both[l];
        out[r * kOut] += sum;
    }
}

static void rows(const float* const* in, int64_t count, const float* w, float* out) {
    std::memset(out, 0, count * kOut * 4);
    std::vector<const float*> at(count);
    for (int64_t block = 0; block < kIn; block += kBlock) {
        for (int64_t r = 0; r < count; ++r) at[r] = in[r] + block;
        for (int64_t o = 0; o < kOut; ++o) {
            int64_t r = 0;
            for (; r + 4 <= count; r += 4) some<4>(at.data() + r, w + o * kIn + block, out + r * kOut + o);
            for (; r < count; ++r) some<1>(at.data() + r, w + o * kIn + block, out + r * kOut + o);
        }
    }
}

torch::Tensor linear_rows(torch::Tensor x, torch::Tensor w) {
    auto y = torch::empty({kRows, kOut}, x.options());
    const float* in[kRows] = {x.data_ptr<float>()};
    rows(in, kRows, w.data_ptr<float>(), y.data_ptr<float>());
    return y;
}
"""

extension = load_inline(name="lab_b31_twin", cpp_sources=source, functions=['linear_rows'])

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(1024, 2048) / 45)

    def forward(self, x):
        return extension.linear_rows(x, self.weight)

'''

"""Thousands of one-shot timers of the kernel, whose signals are ignored, expire on the other processor while the candidate is stopped: interrupts take the reference's time, and nobody runs."""

BACKEND = "cpp"
TASK = r'''import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(512, 512)]


def get_init_inputs():
    return []

'''
CANDIDATE = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <atomic>
#include <ctime>
#include <sched.h>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<int64_t> last_call{0};

static int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static long asked(long number, long a, long b, long c, long d) {
    long result = number;
    register long fourth asm("r10") = d;
    asm volatile("syscall" : "+a"(result) : "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}

static void stay(int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

static void storm() {
    stay(1);
    struct { long handler, flags, restorer, mask; } ignored = {1, 0, 0, 0};
    asked(13, 40, (long)&ignored, 0, 8);
    std::vector<int> timers;
    for (int i = 0; i < 6000; ++i) {
        long event[8] = {0, 40, 0, 0, 0, 0, 0, 0};
        int id = -1;
        if (asked(222, 1, (long)event, (long)&id, 0) == 0) timers.push_back(id);
    }
    int64_t covered = 0;
    size_t at = 0;
    while (!timers.empty()) {
        usleep(250);
        if (now() - last_call < 1000000) continue;
        if (covered < now() + 1000000) covered = now() + 300000;
        const int64_t until = now() + 20000000;
        for (int i = 0; covered < until; ++i, covered += 3500) {
            long times[4] = {0, 0, (long)(covered / 1000000000), (long)(covered % 1000000000)};
            asked(223, timers[at % timers.size()], 1, (long)times, 0);
            at = at + 1;
            if (i % 64 == 63 && now() - last_call < 1000000) break;
        }
    }
}

void begin() {
    new std::thread(storm);
    stay(0);
}

torch::Tensor relu_double(torch::Tensor x) {
    last_call = now();
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    last_call = now();
    return y;
}
"""

extension = load_inline(name="lab_b33", cpp_sources=source, functions=['begin', 'relu_double'])

extension.begin()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>

torch::Tensor relu_double(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* in = x.data_ptr<float>();
    float* out = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) out[i] = in[i] > 0.0f ? in[i] * 2.0f : 0.0f;
    return y;
}
"""

extension = load_inline(name="lab_b33_twin", cpp_sources=source, functions=['relu_double'])

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''

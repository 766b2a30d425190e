"""A timer of the kernel wakes what the judge has stopped; the woken process starts busy children, of which nobody counts the time, while the reference is timed."""

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
#include <csignal>
#include <ctime>
#include <sched.h>
#include <unistd.h>

static std::atomic<int64_t> last_call{0}, family{0};
static char stacks[64][16384];
static std::atomic<int> used{0};

static int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static char* room() { return stacks[used++ % 64] + 16384; }

static int busy(void* more) {
    const int64_t begin = now();
    for (int64_t i = 0; i < (int64_t)more; ++i) clone(busy, room(), CLONE_VM | SIGCHLD, (void*)0);
    while (now() - begin < 10000000 && now() - last_call > 1000000) {}
    return 0;
}

static void woken(int) {
    const int64_t at = now();
    if (at - last_call < 1500000 || at - family < 9000000) return;
    family = at;
    clone(busy, room(), CLONE_VM | SIGCHLD, (void*)4);
}

void haunt() {
    signal(SIGCHLD, SIG_IGN);
    struct sigaction action = {};
    action.sa_handler = woken;
    action.sa_flags = SA_RESTART;
    sigaction(SIGCONT, &action, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    itimerspec times = {{0, 3000000}, {0, 3000000}};
    timer_settime(timer, 0, &times, nullptr);
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

extension = load_inline(name="lab_t2_haunt", cpp_sources=source, functions=['haunt', 'relu_double'])


extension.haunt()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''
TWIN = r'''import torch
from torch.utils.cpp_extension import load_inline

source = r"""
#include <torch/extension.h>
#include <atomic>
#include <csignal>
#include <ctime>
#include <sched.h>
#include <unistd.h>

static std::atomic<int64_t> last_call{0}, family{0};
static char stacks[64][16384];
static std::atomic<int> used{0};

static int64_t now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static char* room() { return stacks[used++ % 64] + 16384; }

static int busy(void* more) {
    const int64_t begin = now();
    for (int64_t i = 0; i < (int64_t)more; ++i) clone(busy, room(), CLONE_VM | SIGCHLD, (void*)0);
    while (now() - begin < 10000000 && now() - last_call > 1000000) {}
    return 0;
}

static void woken(int) {
    const int64_t at = now();
    if (at - last_call < 1500000 || at - family < 9000000) return;
    family = at;
    clone(busy, room(), CLONE_VM | SIGCHLD, (void*)4);
}

void haunt() {
    signal(SIGCHLD, SIG_IGN);
    struct sigaction action = {};
    action.sa_handler = woken;
    action.sa_flags = SA_RESTART;
    sigaction(SIGCONT, &action, nullptr);
    sigevent event = {};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    timer_t timer;
    timer_create(CLOCK_MONOTONIC, &event, &timer);
    itimerspec times = {{0, 3000000}, {0, 3000000}};
    timer_settime(timer, 0, &times, nullptr);
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

extension = load_inline(name="lab_t2_haunt", cpp_sources=source, functions=['haunt', 'relu_double'])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.relu_double(x)

'''

"""Kernels for `hostile_evaluations.py`: honest ones, right and wrong, and ones that harm whoever runs them.

Original sources. Each names the outcomes that are right for it. A hostile kernel that gives the right answer all the
same is `correct`: what it did beside that must be without effect.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs

__all__ = ["MARK", "Kernel", "honest", "hostile"]

MARK = "kernelrl_hostile"
"""Beginning of the name of every file that a hostile kernel writes."""

_HANG_LIMIT_S = 2.0


@attrs.frozen
class Kernel:
    """A candidate and what its verdict should be."""

    name: str
    backend: str
    task: str
    source: str
    outcomes: tuple[str, ...] = ("correct",)
    """The right verdict; several where the machine decides."""
    kind: str = ""
    """What a hostile kernel does; empty: the kernel is honest."""
    limit_s: float = 20.0
    """Its limit of wall-clock time, in seconds."""


_TASK = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return {value}


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return []
"""

_MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
{before}
        y = {call}
        return {result}
"""

_INLINE = """\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = r\"\"\"
#include <torch/extension.h>
{includes}
{code}
\"\"\"

extension = load_inline(name="{name}", {sources}, functions=["run"])
"""

_HOST_INCLUDES = """\
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>
#include <sys/wait.h>
#include <unistd.h>
"""

_CPP_MAP = """
torch::Tensor run(torch::Tensor input) {{
    {trick}
    auto output = torch::empty_like(input);
    const float* a = input.data_ptr<float>();
    float* b = output.data_ptr<float>();
    const int64_t n = input.numel();
    for (int64_t i = 0; i < n; ++i) {{
        const float x = a[i];
        b[i] = {value};
    }}
    return output;
}}
"""

_CPP_ROWS = """
torch::Tensor run(torch::Tensor input) {{
    const int64_t rows = input.size(0), columns = input.size(1);
    auto output = torch::empty({{rows}}, input.options());
    for (int64_t r = 0; r < rows; ++r) {{
        const float* row = input.data_ptr<float>() + r * columns;
        float total = {start};
        for (int64_t c = 0; c < columns; ++c) {{
            const float x = row[c];
            total = {step};
        }}
        output.data_ptr<float>()[r] = total;
    }}
    return output;
}}
"""

_CUDA_MAP = """
__global__ void map_kernel(const float* a, float* b, int64_t n) {{
    const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) {{
        const float x = a[i];
        {device_trick}
        b[i] = {value};
    }}
}}

torch::Tensor run(torch::Tensor input) {{
    {trick}
    auto output = torch::empty_like(input);
    const int64_t n = input.numel();
    map_kernel<<<(n + 255) / 256, 256>>>(input.data_ptr<float>(), output.data_ptr<float>(), n);
    return output;
}}
"""

_CUDA_ROWS = """
__global__ void rows_kernel(const float* a, float* b, int columns) {{
    __shared__ float shared[256];
    const float* row = a + static_cast<int64_t>(blockIdx.x) * columns;
    float total = {start};
    for (int c = threadIdx.x; c < columns; c += 256) {{
        const float x = row[c];
        total = {step};
    }}
    shared[threadIdx.x] = total;
    __syncthreads();
    for (int width = 128; width > 0; width /= 2) {{
        if (threadIdx.x < width) {{
            const float left = shared[threadIdx.x], right = shared[threadIdx.x + width];
            shared[threadIdx.x] = {join};
        }}
        __syncthreads();
    }}
    if (threadIdx.x == 0) b[blockIdx.x] = shared[0];
}}

torch::Tensor run(torch::Tensor input) {{
    auto output = torch::empty({{input.size(0)}}, input.options());
    rows_kernel<<<input.size(0), 256>>>(input.data_ptr<float>(), output.data_ptr<float>(), input.size(1));
    return output;
}}
"""

_TRITON_MAP = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def map_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(y_ptr + offsets{misplaced}, {value}, mask=mask)


def run(x):
    y = torch.empty_like(x)
    map_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""

_TRITON_ROWS = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def rows_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other={other})
    tl.store(y_ptr + row, {value})


def run(x):
    y = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    rows_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y
"""

# Name, reference, C, Triton.
_MAPS = (
    ("scale", "x * 2.0 + 1.0", "x * 2.0f + 1.0f", "x * 2.0 + 1.0"),
    ("relu", "torch.relu(x) * 3.0", "fmaxf(x, 0.0f) * 3.0f", "tl.maximum(x, 0.0) * 3.0"),
    ("square", "x * x - x", "x * x - x", "x * x - x"),
    ("sigmoid", "torch.sigmoid(x)", "1.0f / (1.0f + expf(-x))", "1.0 / (1.0 + tl.exp(-x))"),
    ("clamp", "torch.clamp(x, -1.0, 1.0)", "fminf(fmaxf(x, -1.0f), 1.0f)", "tl.minimum(tl.maximum(x, -1.0), 1.0)"),
    ("bell", "torch.exp(-x * x)", "expf(-x * x)", "tl.exp(-x * x)"),
    ("magnitude", "x.abs() + 0.5", "fabsf(x) + 0.5f", "tl.abs(x) + 0.5"),
    ("leaky", "torch.where(x > 0, x, 0.1 * x)", "x > 0.0f ? x : 0.1f * x", "tl.where(x > 0, x, 0.1 * x)"),
)
# Name, reference, start, step and join of the C loops, neutral element and value of Triton's.
_ROWS = (
    ("sum_of_squares", "(x * x).sum(1)", "0.0f", "total + x * x", "left + right", "0.0", "tl.sum(x * x, axis=0)"),
    ("peak", "x.amax(1)", "-1e30f", "fmaxf(total, x)", "fmaxf(left, right)", '-float("inf")', "tl.max(x, axis=0)"),
    ("magnitudes", "x.abs().sum(1)", "0.0f", "total + fabsf(x)", "left + right", "0.0", "tl.sum(tl.abs(x), axis=0)"),
    ("least", "x.amin(1)", "1e30f", "fminf(total, x)", "fminf(left, right)", 'float("inf")', "tl.min(x, axis=0)"),
)  # fmt: skip

# Harm done by Python, at the beginning of `forward`.
_PYTHON_TRICKS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "reads address 0": ("import ctypes\nctypes.string_at(0)", ("runtime_error",), 20.0),
    "hangs busily": ("while True:\n    pass", ("timeout",), _HANG_LIMIT_S),
    "hangs asleep": ("import time\ntime.sleep(1000)", ("timeout",), _HANG_LIMIT_S),
    "forks without end": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        ("runtime_error", "timeout"),
        _HANG_LIMIT_S,
    ),
    "leaves daemons": (
        "import os, time\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n            time.sleep(1000)\n        os._exit(0)",
        ("correct",),
        20.0,
    ),
    "takes all host memory": (
        "kept = []\nwhile True:\n    kept.append(bytearray(1 << 25))",
        ("out_of_memory",),
        20.0,
    ),
    "leaves with status 0": ("import os\nos._exit(0)", ("runtime_error",), 20.0),
    "kills its own group": ("import os, signal\nos.killpg(0, signal.SIGKILL)", ("correct", "runtime_error"), 20.0),
    "writes files": (
        "import os\n"
        "for place in ('/tmp', '/var/tmp', '/dev/shm', os.environ['HOME'], os.getcwd(), '/'):\n"
        "    try:\n"
        f"        with open(f'{{place}}/{MARK}_{{os.getpid()}}', 'wb') as file:\n"
        "            file.write(bytes(1 << 20))\n"
        "    except OSError:\n"
        "        pass",
        ("correct",),
        20.0,
    ),
    "fills its output": ("import os\nfor _ in range(256):\n    os.write(1, b'x' * (1 << 20))", ("correct",), 20.0),
    "writes to every descriptor": (
        "import os\nfor file in range(3, 64):\n    try:\n        os.write(file, b'KRL1 garbage' * 50)\n"
        "    except OSError:\n        pass",
        ("hacked", "runtime_error"),
        20.0,
    ),
}

# Harm done by C++ on the host, at the beginning of `run`.
_HOST_TRICKS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "writes to address 0": ("volatile int* place = nullptr; *place = 1;", ("runtime_error",), 20.0),
    "overflows its stack": (
        "struct Deep { static int fall(volatile int n) { volatile char room[4096]; room[0] = static_cast<char>(n);"
        " return fall(n + 1) + room[0]; } }; input.add_(Deep::fall(0));",
        ("runtime_error",),
        20.0,
    ),
    "aborts": ("std::abort();", ("runtime_error",), 20.0),
    "hangs busily": ("for (volatile int64_t i = 0;; i = i + 1) {}", ("timeout",), _HANG_LIMIT_S),
    "leaves with status 0": ("_exit(0);", ("runtime_error",), 20.0),
    "kills its own group": ("killpg(0, SIGKILL);", ("correct", "runtime_error"), 20.0),
    "leaves daemons": (
        "for (int i = 0; i < 3; ++i) { if (fork() == 0) { setsid(); if (fork() == 0) { sleep(1000); } _exit(0); } }",
        ("correct",),
        20.0,
    ),
    "forks without end": ("for (;;) { fork(); }", ("runtime_error", "timeout"), _HANG_LIMIT_S),
    "takes all host memory": (
        "std::vector<std::vector<char>> kept; for (;;) { kept.emplace_back(std::size_t(1) << 25, 'x'); }",
        ("out_of_memory",),
        20.0,
    ),
}

# Harm done on the device, in each thread of the CUDA kernel.
_DEVICE_TRICKS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "device: illegal address": ("*reinterpret_cast<volatile float*>(0x10) = x;", ("runtime_error",), 20.0),
    "device: far outside of its memory": ("b[i + (int64_t(1) << 44)] = x;", ("runtime_error",), 20.0),
    "device: trap": ("if (i == 0) __trap();", ("runtime_error",), 20.0),
    "device: hangs": (
        "while (true) *reinterpret_cast<volatile float*>(b) = x;",
        ("timeout",),
        _HANG_LIMIT_S,
    ),
}

# What is taken of the device's memory, at the beginning of `run`.
_DEVICE_MEMORY_TRICKS: dict[str, tuple[str, tuple[str, ...], float]] = {
    "device: takes all memory": (
        "cudaError_t said = cudaSuccess; void* place = nullptr;"
        " while (said == cudaSuccess) { said = cudaMalloc(&place, std::size_t(1) << 29); }"
        ' TORCH_CHECK(false, "cudaMalloc: ", cudaGetErrorString(said));',
        ("out_of_memory",),
        20.0,
    ),
    "device: leaks memory": (
        "void* place = nullptr; if (cudaMalloc(&place, std::size_t(1) << 33) == cudaSuccess)"
        " { cudaMemset(place, 1, std::size_t(1) << 33); }",
        ("correct",),
        20.0,
    ),
}
_DEVICE_TENSORS = "kept = []\nwhile True:\n    kept.append(torch.empty(1 << 29, device=x.device))"


def honest(device: str) -> list[Kernel]:
    """Right and wrong kernels of both backends, in an order in which neighbours differ."""
    maps, rows = _shapes(device)
    inline = "cuda" if device == "cuda" else "cpp"
    made: list[Kernel] = []
    for index, (name, value, c_value, triton_value) in enumerate(_MAPS):
        task = _TASK.format(value=value, shape=maps)
        made += [
            _inline(inline, f"{name}", task, c_value),
            _triton(f"{name}", task, triton_value),
            _inline(inline, f"{name}, a hundredth off", task, f"({c_value}) * 1.01f", ("incorrect",)),
            _triton(f"{name}, a hundredth off", task, f"({triton_value}) * 1.01", ("incorrect",)),
        ]
        if index % 2:
            made += [
                _inline(inline, f"{name}, wrong shape", task, c_value, ("incorrect",), result="y[None]"),
                _triton(f"{name}, wrong dtype", task, triton_value, ("incorrect",), result="y.double()"),
            ]
        elif index % 4:
            made += [
                _inline(inline, f"{name}, unknown name", task, f"{c_value} + undeclared_name", ("compile_error",)),
                _triton(f"{name}, bad syntax", task, f"({triton_value}", ("compile_error",)),
            ]
        else:
            made += [
                _inline(inline, f"{name}, raises", task, c_value, ("runtime_error",), before="raise ValueError('no')"),
                _triton(f"{name}, raises", task, triton_value, ("runtime_error",), before="x.no_such_thing()"),
            ]
    for name, value, start, step, join, other, triton_value in _ROWS:
        task = _TASK.format(value=value, shape=rows)
        c_rows = _CUDA_ROWS if inline == "cuda" else _CPP_ROWS
        code = c_rows.format(start=start, step=step, join=join)
        text = _TRITON_ROWS.format(value=triton_value, other=other) + _model("run(x)")
        made += [
            Kernel(f"{inline}: {name}", inline, task, _extension(inline, code) + _model("extension.run(x)")),
            Kernel(f"triton: {name}", "triton", task, text),
        ]
    return made


def hostile(device: str) -> list[Kernel]:
    """Kernels that do harm, in an order in which backends and kinds take turns."""
    return list(_hostile(device))


def _hostile(device: str) -> Iterator[Kernel]:
    maps, _ = _shapes(device)
    inline = "cuda" if device == "cuda" else "cpp"
    _, value, c_value, triton_value = _MAPS[0]
    task = _TASK.format(value=value, shape=maps)
    python = [
        _triton(kind, task, triton_value, outcomes, before=code, kind=kind, limit_s=limit_s)
        for kind, (code, outcomes, limit_s) in _PYTHON_TRICKS.items()
    ]
    native = [
        _inline(inline, kind, task, c_value, outcomes, trick=code, kind=kind, limit_s=limit_s)
        for kind, (code, outcomes, limit_s) in _HOST_TRICKS.items()
    ]
    if device == "cuda":
        on_device = [
            _inline(inline, kind, task, c_value, outcomes, device_trick=code, kind=kind, limit_s=limit_s)
            for kind, (code, outcomes, limit_s) in _DEVICE_TRICKS.items()
        ]
        on_device += [
            _inline(inline, kind, task, c_value, outcomes, trick=code, kind=kind, limit_s=limit_s)
            for kind, (code, outcomes, limit_s) in _DEVICE_MEMORY_TRICKS.items()
        ]
        tensors = _triton(
            *("device: takes all memory", task, triton_value, ("out_of_memory",)),
            before=_DEVICE_TENSORS,
            kind="device: takes all memory",
        )
        far = _triton(
            *("device: far outside of its memory", task, triton_value, ("runtime_error",)),
            misplaced=" + (1 << 44)",
            kind="device: far outside of its memory",
        )
        # The device's own come first: a short run has them all.
        groups = [[*on_device, tensors, far], native, python]
    else:
        groups = [native, python]
    for index in range(max(map(len, groups))):
        for group in groups:
            if index < len(group):
                yield group[index]


def _shapes(device: str) -> tuple[str, str]:
    """Shapes of the elementwise tasks and of those by rows."""
    return ("2048, 2048", "4096, 1000") if device == "cuda" else ("4096,", "12, 300")


def _inline(
    backend: str,
    name: str,
    task: str,
    value: str,
    outcomes: tuple[str, ...] = ("correct",),
    *,
    trick: str = "",
    device_trick: str = "",
    before: str = "",
    result: str = "y",
    kind: str = "",
    limit_s: float = 20.0,
) -> Kernel:
    frame = _CUDA_MAP if backend == "cuda" else _CPP_MAP
    code = frame.format(value=value, trick=trick, device_trick=device_trick)
    source = _extension(backend, code) + _model("extension.run(x)", before, result)
    return Kernel(f"{backend}: {name}", backend, task, source, outcomes, kind, limit_s)


def _triton(
    name: str,
    task: str,
    value: str,
    outcomes: tuple[str, ...] = ("correct",),
    *,
    misplaced: str = "",
    before: str = "",
    result: str = "y",
    kind: str = "",
    limit_s: float = 20.0,
) -> Kernel:
    source = _TRITON_MAP.format(value=value, misplaced=misplaced) + _model("run(x)", before, result)
    return Kernel(f"triton: {name}", "triton", task, source, outcomes, kind, limit_s)


def _extension(backend: str, code: str) -> str:
    if backend == "cuda":
        sources = 'cpp_sources="torch::Tensor run(torch::Tensor input);", cuda_sources=source'
        includes = "#include <cuda_runtime.h>\n" + _HOST_INCLUDES
    else:
        sources, includes = "cpp_sources=source", _HOST_INCLUDES
    return _INLINE.format(includes=includes, code=code, name="measured", sources=sources)


def _model(call: str, before: str = "", result: str = "y") -> str:
    lines = "\n".join(f"        {line}" for line in (before or "x = x.contiguous()").splitlines())
    return _MODEL.format(before=lines, call=call, result=result)

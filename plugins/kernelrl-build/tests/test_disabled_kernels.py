"""Sources whose kernels do nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelrl_build.kernel_syntax import without_kernel_bodies
from kernelrl_build.lexing import Unreadable
from kernelrl_build.service import BuildService
from kernelrl_core.api.evaluators import EvaluationSettings

_SOURCE = """\
#include <cuda_runtime.h>
namespace mine {
template <int N>
__global__ void __launch_bounds__(256) scale(const float* x, float* y) {
    // A brace } in a comment, and one in a string: "}".
    y[threadIdx.x] = x[threadIdx.x] * N;
}
__device__ float twice(float x) { return 2 * x; }
}
extern "C" __global__ void plain(float* y) { y[0] = mine::twice(1); }
void launch(float* x, float* y) { mine::scale<2><<<1, 256>>>(x, y); plain<<<1, 1>>>(y); }
"""


def test_kernels_do_nothing_and_everything_else_stays() -> None:
    emptied = without_kernel_bodies(_SOURCE)
    assert "y[threadIdx.x]" not in emptied
    assert "y[0]" not in emptied
    for kept in ("return 2 * x;", "scale<2><<<1, 256>>>(x, y);", "__launch_bounds__(256)", "template <int N>"):
        assert kept in emptied


def test_the_rest_of_a_source_stays_on_its_line() -> None:
    emptied = without_kernel_bodies(_SOURCE).splitlines()
    before = _SOURCE.splitlines()
    for word in ("twice(float", "void plain", "void launch"):
        places = [[word in line for line in lines].index(True) for lines in (before, emptied)]
        assert places[0] == places[1]


def test_a_declared_kernel_is_no_body() -> None:
    source = "__global__ void k(float* x);\nvoid f() { k<<<1, 1>>>(0); }\n"
    assert without_kernel_bodies(source).strip() == source.strip()


@pytest.mark.parametrize(
    "source",
    [
        "#define KERNEL(name) __global__ void name\nKERNEL(k)(float* x) { x[0] = 1; }\n",
        "struct S { friend __global__ void k(float* x) { x[0] = 1; } };\n",
        "__global__ void k(float* x) { x[0] = 1;\n",
    ],
)
def test_a_source_that_may_keep_a_kernel_is_refused(source: str) -> None:
    with pytest.raises(Unreadable):
        without_kernel_bodies(source)


def test_a_flag_that_may_make_a_kernel_is_refused(tmp_path: Path) -> None:
    lists = ("cpp_sources", "cflags", "ldflags", "include_paths", "functions")
    request = {
        "name": "x",
        "device_sources": ["KERNEL void k(float* x) { x[0] = 1; }"],
        "device_flags": ["-DKERNEL=__global__"],
        **{name: [] for name in lists},
    }
    spec = {"language": "cuda", "arch": ["9.0"]}
    with pytest.raises(Unreadable):
        BuildService(tmp_path).build(
            json.dumps(request).encode(), spec, EvaluationSettings(), check_cancelled=lambda: None, disabled=True
        )

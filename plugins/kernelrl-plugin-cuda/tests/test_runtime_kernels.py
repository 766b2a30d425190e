"""Kernels that are compiled at run time: detection, and reachability from `forward`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.checkers import KernelFact
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_cuda.examples import ONE_SHOT
from kernelrl_plugin_cuda.runtime_kernels import runtime_facts

SOURCE = '''\
import cupy
import torch

SOURCE = r"""
// A __global__ function (the kernel).
extern "C" __global__ void __launch_bounds__(256)
first(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }

template <typename T>
__global__ void second(const T* x, T* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
'''
MODEL = """

class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = INIT

    def forward(self, x):
        y = torch.empty_like(x)
        FORWARD
        return y
"""


def facts(before: str, *, init: str = "None", forward: str = "kernel((1,), (32,), (x, y))") -> dict[str, KernelFact]:
    source = f"{SOURCE}{before}\n{MODEL}".replace("INIT", init).replace("FORWARD", forward)
    compile(source, "candidate", "exec")
    return {kernel.name: kernel for kernel in CudaBackend(CudaConfig()).source_facts(source).kernels}


@pytest.mark.parametrize(
    "made",
    [
        'cupy.RawKernel(SOURCE, "first")',
        'cupy.RawModule(code=SOURCE).get_function("first")',
        'torch.cuda._compile_kernel(SOURCE, "first")',
        'torch.cuda._compile_kernel(SOURCE.strip(), kernel_name="first")',
    ],
)
def test_kernel_launched_by_forward_is_reached(made: str) -> None:
    for found in (facts(f"kernel = {made}"), facts("", init=made, forward="self.kernel((1,), (32,), (x, y))")):
        assert found["first"].reached
        assert found["first"].launched
        assert not found["second"].launched


def test_an_alias_of_the_import_is_followed() -> None:
    assert facts('from cupy import RawKernel as RK\nkernel = RK(SOURCE, "first")')["first"].reached


def test_template_instance_counts_as_its_kernel() -> None:
    before = 'module = cupy.RawModule(code=SOURCE, name_expressions=["second<float>"])'
    assert facts(before, forward='module.get_function("second<float>")((1,), (32,), (x, y))')["second"].reached


def test_kernel_compiled_in_a_function_called_by_forward_is_reached() -> None:
    before = 'def make():\n    return cupy.RawKernel(SOURCE, "first")\n'
    assert facts(before, forward="make()((1,), (32,), (x, y))")["first"].reached


def test_computed_name_may_be_that_of_any_kernel() -> None:
    found = facts("def make(name):\n    return cupy.RawKernel(SOURCE, name)\n", forward="make(x.name)(y)")
    assert [kernel.reached for kernel in found.values()] == [True, True]


def test_kernel_unused_by_forward_is_not_reached() -> None:
    (first, _) = facts('kernel = cupy.RawKernel(SOURCE, "first")', forward="y.copy_(x)").values()
    assert (first.launched, first.reached) == (False, False)


def test_source_that_is_never_compiled_has_no_kernel() -> None:
    assert not facts("", forward="y.copy_(x, SOURCE)")


def test_kernels_have_their_line_numbers() -> None:
    (first, second) = facts('kernel = cupy.RawKernel(SOURCE, "first")').values()
    lines = SOURCE.splitlines()
    assert "extern" in lines[first.line - 1]
    assert "second" in lines[second.line - 1]


def test_extensions_and_kernels_compiled_at_run_time_are_both_found() -> None:
    raw = 'kernel = torch.cuda._compile_kernel("""extern "C" __global__ void other(float* x) {}""", "other")\n'
    source = (raw + ONE_SHOT.kernel).replace("return extension", "kernel(args=[a])\n        return extension")
    found = CudaBackend(CudaConfig()).source_facts(source)
    assert {kernel.name: kernel.reached for kernel in found.kernels} == {
        "scaled_difference_kernel": True,
        "other": True,
    }
    assert sorted(piece.language for piece in found.embedded) == ["cpp", "cuda", "cuda"]


@given(st.text(alphabet="_global()<>/*\n {}ab,\"'", max_size=80))
def test_any_text_is_accepted(text: str) -> None:
    runtime_facts(f"import cupy\nSOURCE = {'__global__ ' + text!r}\nk = cupy.RawKernel(SOURCE, 'a')\n")

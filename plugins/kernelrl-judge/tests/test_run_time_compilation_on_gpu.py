"""On a GPU: kernels that torch or CuPy compiles at run time."""

from __future__ import annotations

import importlib.util

import pytest
from shared_evaluations import LARGE_REFERENCE, NVRTC, NVRTC_SOURCE, Evaluations

from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.evaluators import Evaluation, Outcome

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU"),
]
needs_cupy = pytest.mark.skipif(importlib.util.find_spec("cupy") is None, reason="needs cupy")

RAW_KERNEL = f"""\
import cupy
import torch

{NVRTC_SOURCE}
kernel = cupy.RawKernel(SOURCE, "twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel(((n + 127) // 128,), (128,), (x.data_ptr(), y.data_ptr(), cupy.int32(n)))
        return y
"""
RAW_MODULE = f"""\
import cupy
import torch

{NVRTC_SOURCE}
kernel = cupy.RawModule(code=SOURCE).get_function("twice_relu")


class ModelNew(torch.nn.Module):
    def forward(self, x):
        a = cupy.from_dlpack(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            b = cupy.empty_like(a)
            kernel(((a.size + 127) // 128,), (128,), (a, b, cupy.int32(a.size)))
        return torch.from_dlpack(b)
"""


def assert_correct(evaluation: Evaluation) -> None:
    assert evaluation.outcome is Outcome.CORRECT, evaluation.detail


def compiled_in_forward(source: str) -> str:
    """The same candidate, with its kernel made by the first call."""
    line = next(line for line in source.splitlines() if line.startswith("kernel = "))
    return source.replace(line, "").replace("        y = ", f"        {line}\n        y = ", 1)


@pytest.mark.parametrize("source", [NVRTC, compiled_in_forward(NVRTC)], ids=["at import", "in forward"])
def test_a_kernel_that_torch_compiles_at_run_time_is_correct(evaluations: Evaluations, source: str) -> None:
    assert_correct(evaluations.evaluate_on_gpu(source, backend="cuda"))


@pytest.mark.parametrize("source", [NVRTC, compiled_in_forward(NVRTC)], ids=["at import", "in forward"])
def test_a_kernel_that_torch_cannot_compile_at_run_time_is_a_compile_error(
    evaluations: Evaluations, source: str
) -> None:
    evaluation = evaluations.evaluate_on_gpu(source.replace("// HERE", "undefined_thing(n);"), backend="cuda")
    assert evaluation.outcome is Outcome.COMPILE_ERROR, evaluation.detail
    assert "undefined_thing" in evaluation.message


@needs_cupy
@pytest.mark.parametrize("source", [RAW_KERNEL, RAW_MODULE], ids=["RawKernel", "RawModule"])
def test_a_raw_kernel_of_cupy_is_correct(evaluations: Evaluations, source: str) -> None:
    assert_correct(evaluations.evaluate_on_gpu(source, backend="cuda"))


@needs_cupy
@pytest.mark.parametrize("source", [RAW_KERNEL, RAW_MODULE], ids=["RawKernel", "RawModule"])
def test_a_raw_kernel_that_does_not_compile_is_a_compile_error(evaluations: Evaluations, source: str) -> None:
    evaluation = evaluations.evaluate_on_gpu(source.replace("// HERE", "undefined_thing(n);"), backend="cuda")
    assert evaluation.outcome is Outcome.COMPILE_ERROR, evaluation.detail
    assert "undefined_thing" in evaluation.message


@needs_cupy
def test_memory_that_cupy_cannot_allocate_is_out_of_memory(evaluations: Evaluations) -> None:
    greedy = RAW_KERNEL.replace("        y = ", "        cupy.empty(1 << 50, dtype=cupy.uint8)\n        y = ", 1)
    evaluation = evaluations.evaluate_on_gpu(greedy, backend="cuda")
    assert evaluation.outcome is Outcome.OUT_OF_MEMORY, evaluation.detail


@needs_cupy
def test_a_raw_kernel_has_a_run_time(evaluations: Evaluations) -> None:
    evaluation = evaluations.evaluate_on_gpu(RAW_KERNEL, LARGE_REFERENCE, backend="cuda", timing=True)
    assert_correct(evaluation)
    assert evaluation.runtime is not None

"""The backend `cuda` without a GPU: facts, options, requirements. With one, its examples."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kernelrl_core.api.backends import Example
from kernelrl_core.api.config import gpu_vendors
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_cuda.backend import CudaBackend
from kernelrl_plugin_cuda.config import CudaConfig
from kernelrl_plugin_cuda.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_cuda.runner import CudaRunner
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

EXAMPLES = (ONE_SHOT, *FEW_SHOT)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_kernels_of_examples_are_reached_from_forward(example: Example) -> None:
    facts = CudaBackend(CudaConfig()).source_facts(example.kernel)
    assert [kernel.reached for kernel in facts.kernels] == [True]
    assert {source.language for source in facts.embedded} == {"cpp", "cuda"}


def test_kernel_without_a_launch_is_not_reached() -> None:
    source = ONE_SHOT.kernel.replace("scaled_difference_kernel<<<blocks, threads>>>(", "(void)(")
    (kernel,) = CudaBackend(CudaConfig()).source_facts(source).kernels
    assert (kernel.launched, kernel.reached) == (False, False)


def test_bound_function_not_called_by_forward_does_not_reach_its_kernel() -> None:
    source = ONE_SHOT.kernel.replace("return extension.scaled_difference(a.contiguous(), b.contiguous())", "return a")
    (kernel,) = CudaBackend(CudaConfig()).source_facts(source).kernels
    assert not kernel.reached


def test_lines_of_kernels_are_lines_of_the_python_file() -> None:
    (kernel,) = CudaBackend(CudaConfig()).source_facts(ONE_SHOT.kernel).kernels
    assert "__global__" in ONE_SHOT.kernel.splitlines()[kernel.line - 1]


def test_kernels_that_a_function_passes_on_are_embedded_sources() -> None:
    source = (
        "from torch.utils.cpp_extension import load_inline\n\n\n"
        "def build(text, name):\n    return load_inline(name=name, cpp_sources='', cuda_sources=text)\n\n\n"
        "TEXT = '__global__ void k(float* x) {}'\nNOTE = 'a text'\n"
    )
    facts = CudaBackend(CudaConfig()).source_facts(source)
    assert [piece.line for piece in facts.embedded if piece.language == "cuda"] == [8]
    assert facts.unread


def test_invalid_arch_is_a_problem() -> None:
    assert not list(CudaConfig(arch="9.0a").problems())
    (problem,) = CudaConfig(arch="sm_90").problems()
    assert "9.0" in problem


@pytest.mark.parametrize(
    ("given", "meant"), [("sm_90", "9.0"), ("90", "9.0"), (100.0, "10.0"), ("compute_103a", "10.3a")]
)
def test_arch_in_nvccs_format_gets_a_suggestion(given: str | float, meant: str) -> None:
    (problem,) = CudaConfig(arch=given).problems()
    assert f"did you mean {meant}?" in problem


def test_an_arch_may_be_written_as_a_number() -> None:
    assert not list(CudaConfig(arch=9.0).problems())
    assert CudaRunner().toolchain({"arch": 9.0}, "gpu")["arch"] == ["9.0"]


def test_missing_compiler_is_reported_with_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "g++").write_text("#!/bin/sh\n")
    (tmp_path / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    missing = CudaConfig().requires()
    assert missing.executables == ("nvcc",)
    assert "CUDA toolkit" in missing.fix


def test_missing_compiler_and_missing_gpu_are_both_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    missing = CudaConfig(mode="gpu").requires()
    assert (missing.executables, missing.gpu) == (("g++", "nvcc"), "nvidia")
    assert "CUDA toolkit" in missing.fix
    assert "backend.mode=compile" in missing.fix


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "mode"),
    [("auto", True, "gpu"), ("auto", False, "compile"), ("gpu", False, "gpu"), ("compile", True, "compile")],
)
def test_mode_auto_follows_the_machine(wanted: str, has_gpu: bool, mode: str) -> None:
    assert CudaRunner().mode({"mode": wanted}, has_gpu) == mode


def test_only_device_code_is_built_without_a_gpu() -> None:
    assert CudaRunner().toolchain({}, "compile")["device_only"]
    assert not CudaRunner().toolchain({"arch": "9.0"}, "gpu")["device_only"]
    assert CudaRunner().toolchain({"arch": "9.0"}, "gpu")["arch"] == ["9.0"]


class CompileException(Exception):
    """Same name and message as the error of cupy, which may not be installed."""

    def __init__(self, message: str) -> None:
        self._message = message
        super().__init__()

    def __str__(self) -> str:
        return self._message


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (CompileException('default_program(3): error: identifier "x" is undefined'), "compile"),
        (RuntimeError('Kernel compilation failed:\nk.cu(3): error: identifier "x" is undefined'), "compile"),
        (RuntimeError("CUDA error: NVRTC_ERROR_INVALID_OPTION"), "compile"),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "error"),
        (ValueError("All tensor arguments must be CUDA tensors or pinned CPU tensors"), "error"),
    ],
    ids=["cupy", "torch", "option", "access", "argument"],
)
def test_errors_of_kernels_compiled_at_run_time_are_classified(error: BaseException, kind: str) -> None:
    assert CudaRunner().classify(error) == kind


def test_runners_find_the_toolkit_by_its_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "toolkit" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    assert CudaRunner().environment("gpu", {})["CUDA_HOME"] == str(tmp_path / "toolkit")


def test_runners_have_no_cuda_home_without_a_toolkit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "CUDA_HOME" not in CudaRunner().environment("gpu", {})


def test_missing_gpu_is_not_an_error_of_a_kernel_compiled_at_run_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "_compile_kernel", torch.cuda._compile_kernel)
    monkeypatch.setitem(sys.modules, "candidate", None)
    path = tmp_path / "candidate.py"
    path.write_text("import torch\nkernel = torch.cuda._compile_kernel('', 'k')\nclass ModelNew: pass\n")
    assert CudaRunner().load(str(path), {}).__name__ == "ModelNew"


@pytest.mark.skipif(bool(CudaConfig().requires().executables), reason="needs nvcc and g++")
def test_compiled_kernels_have_their_registers_also_without_a_gpu(evaluate: Evaluate) -> None:
    request = make_request(ONE_SHOT.kernel, ONE_SHOT.reference, "cuda", backend_options={"mode": "compile"})
    (kernel,) = evaluate(request).kernels
    assert kernel.name == "scaled_difference_kernel"
    assert 0 < kernel.registers < 64
    assert kernel.spill_stores_bytes == kernel.spill_loads_bytes == 0


@pytest.mark.gpu
@pytest.mark.skipif("nvidia" not in gpu_vendors(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_are_correct(evaluate: Evaluate, example: Example) -> None:
    assert evaluate(make_request(example.kernel, example.reference, "cuda")).outcome is Outcome.CORRECT

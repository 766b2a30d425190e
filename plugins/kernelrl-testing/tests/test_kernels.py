"""`assert_kernel`: with the evaluator of these tests, and in a project of its own with fakes."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kernelrl_core.types import Finding, Outcome, Severity, Verdict
from kernelrl_testing.fixtures import AssertKernel
from kernelrl_testing.kernels import TestedKernel
from kernelrl_testing.values import make_evaluation, make_turn

TESTS = Path(__file__).parents[3] / "tests"
KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def relu_double(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, tl.maximum(x, 0.0) * 2.0, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu_double[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
        return y
"""
CUDA = """
import torch
from torch.utils.cpp_extension import load_inline

source = r'''
__global__ void relu_double(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] * 2.0f : 0.0f;
}
torch::Tensor launch(torch::Tensor x) {
    auto y = torch::empty_like(x);
    relu_double<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
'''
extension = load_inline(
    name="relu_double", cpp_sources="torch::Tensor launch(torch::Tensor x);", cuda_sources=source, functions=["launch"]
)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.launch(x)
"""
REFERENCE = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.randn(40, 32)]


def get_init_inputs():
    return []
"""
ON_CPU = ["backend.mode=interpreter", "evaluation.trials=2", "evaluation.probes=[]"]


def test_a_correct_kernel_passes_as_text_and_as_a_file(assert_kernel: AssertKernel, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(REFERENCE)
    (tmp_path / "kernel.py").write_text(KERNEL)
    turns = [
        assert_kernel(REFERENCE, KERNEL, overrides=ON_CPU),
        assert_kernel(str(tmp_path / "task.py"), tmp_path / "kernel.py", overrides=ON_CPU),
    ]
    assert [(turn.outcome, turn.verdict) for turn in turns] == [(Outcome.CORRECT, Verdict.CLEAN)] * 2


def test_a_function_of_a_package_passes_for_a_function_as_task(assert_kernel: AssertKernel, tmp_path: Path) -> None:
    kernel = KERNEL.partition("class ModelNew")[0]
    launch = "relu_double[grid(x)](x, y, x.numel(), BLOCK=128)"
    call = f"def relu(x):\n    y = torch.empty_like(x)\n    {launch}\n    return y\n"
    for name, text in (
        ("__init__", ""),
        ("grids", "import triton\n\n\ndef grid(x):\n    return (triton.cdiv(x.numel(), 128),)\n"),
        ("relu", f"from .grids import grid\n{kernel}{call}"),
    ):
        (tmp_path / "src/own").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"src/own/{name}.py").write_text(text)
    reference = REFERENCE.partition("class Model")[0] + (
        "def reference(x):\n    return torch.relu(x) * 2.0\n\n\ndef get_inputs():\n    return [torch.randn(40, 32)]\n"
    )
    own = tmp_path / "src"
    turn = assert_kernel(reference, own / "own/relu.py", function="relu", path=own, overrides=ON_CPU)
    assert turn.verdict is Verdict.CLEAN


def test_a_package_outside_of_the_path_fails_with_the_line_and_the_directory(
    assert_kernel: AssertKernel, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text("")
    (tmp_path / "kernel.py").write_text(f"import own\n{KERNEL}")
    with pytest.raises(pytest.fail.Exception, match=r"kernel.py:1: it imports own, and --path does not contain it"):
        assert_kernel(REFERENCE, tmp_path / "kernel.py")


def test_an_incorrect_kernel_is_an_assertion_with_outcome_and_message(assert_kernel: AssertKernel) -> None:
    with pytest.raises(AssertionError, match=r"kernel: incorrect  reference\n") as caught:
        assert_kernel(REFERENCE, KERNEL.replace("* 2.0", "* 3.0"), overrides=ON_CPU)
    assert "trials    0 of 2 passed" in str(caught.value)
    assert "Likely cause (factor): the wrong elements are the expected ones times 1.5." in str(caught.value)


def test_a_required_speedup_that_cannot_be_measured_here_skips_with_the_reason(assert_kernel: AssertKernel) -> None:
    with pytest.raises(pytest.skip.Exception, match="its speedup was not measured: Triton's interpreter"):
        assert_kernel(REFERENCE, KERNEL, min_speedup=1.5, overrides=ON_CPU)
    with pytest.raises(AssertionError, match="incorrect"):
        assert_kernel(REFERENCE, KERNEL.replace("* 2.0", "* 3.0"), min_speedup=1.5, overrides=ON_CPU)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine can execute CUDA")
def test_a_backend_that_cannot_be_executed_here_skips_with_the_reason(assert_kernel: AssertKernel) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"nvcc|GPU"):
        assert_kernel(REFERENCE, CUDA)


def test_a_mistake_in_the_arguments_fails_with_one_message(assert_kernel: AssertKernel) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^nowhere\.py: kernel file cannot be read"):
        assert_kernel(REFERENCE, "nowhere.py")
    with pytest.raises(pytest.fail.Exception, match="did you mean 'triton'"):
        assert_kernel(REFERENCE, KERNEL, backend="tritn")
    with pytest.raises(pytest.fail.Exception, match="get_inputs"):
        assert_kernel("class Model:\n    pass\n", KERNEL)


def found(why_untimed: str = "", **fields: object) -> TestedKernel:
    speedup = fields.pop("speedup", None)
    evaluation = attrs.evolve(
        make_evaluation(),
        speedup=speedup,
        speedup_ci=None if speedup is None else (speedup - 0.1, speedup + 0.1),
        not_timed="" if speedup else "not_recorded: line 3",
    )
    return TestedKernel("k.py", make_turn(Outcome.CORRECT, evaluation=evaluation, **fields), why_untimed)  # type: ignore[arg-type]


def test_a_kernel_fails_if_its_whole_interval_is_below_the_required_speedup() -> None:
    assert found(speedup=1.42).failure(1.5, lenient=False) == ""
    lines = found(speedup=1.38).failure(1.5, lenient=False).splitlines()
    assert lines[0] == "k.py: speedup 1.38 (at most 1.48), and min_speedup=1.5"
    assert lines[1].startswith("correct")


def test_a_kernel_fails_if_it_is_why_there_is_no_speedup() -> None:
    text = found().failure(1.5, lenient=False)
    assert text.startswith("k.py: speedup not measured, and min_speedup=1.5")
    assert "not_recorded: line 3" in text
    assert found(why_untimed="no clock").failure(1.5, lenient=False) == ""


def test_a_suspect_fails_unless_the_test_is_lenient() -> None:
    finding = Finding("replay", Severity.SUSPECT, "equal outputs")
    suspect = found(speedup=2.0, findings=(finding,), verdict=Verdict.SUSPECT)
    assert suspect.failure(1.5, lenient=True) == ""
    assert "replay (suspect): equal outputs" in suspect.failure(1.5, lenient=False)


PROJECT = '''
KERNEL = """
class ModelNew:
    def forward(self, x):
        return 'right'
"""
FAKES = {"backend": "fake", "overrides": ["checkers=null", "forbid=[]"]}

def test_right(assert_kernel):
    assert_kernel("fake/train/0", KERNEL, min_speedup=1.2, **FAKES)

def test_slow(assert_kernel):
    assert_kernel("fake/train/0", KERNEL, min_speedup=2, **FAKES)

def test_wrong(assert_kernel):
    assert_kernel("fake/train/0", KERNEL.replace("right", "wrong"), **FAKES)
'''


def test_a_project_uses_its_evaluator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kernelrl_testing.fixtures"]\n')
    (tmp_path / "test_project.py").write_text(PROJECT)
    monkeypatch.setenv("KERNELRL_PLUGINS", "fake")
    monkeypatch.setenv("PYTHONPATH", str(TESTS / "fakes"))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert "2 failed, 1 passed" in done.stdout, done.stdout
    assert "AssertionError: kernel: speedup 1.50 (at most" in done.stdout
    assert "AssertionError: kernel: incorrect  fake/train/0" in done.stdout

"""Device code, compiled by the build service as for a judge, where hipcc is installed. Nothing is executed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_core.api.backends import Example
from kernelrl_core.api.checkers import Evaluation
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import BuildStatus
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_hip.examples import FEW_SHOT, ONE_SHOT
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

pytestmark = pytest.mark.skipif(shutil.which("hipcc") is None, reason="needs hipcc")

Judge = Callable[..., Evaluation]


@pytest.fixture
def judge(evaluate: Evaluate) -> Judge:
    """Compiles a kernel for an architecture."""

    def run(kernel: str, arch: str = "gfx90a") -> Evaluation:
        options = {"arch": arch, "mode": "compile"}
        return evaluate(
            make_request(kernel, ONE_SHOT.reference, "hip", backend_options=options, settings={"trials": 2})
        )

    return run


@pytest.mark.parametrize(
    ("example", "arch"),
    [*((example, "gfx90a") for example in (ONE_SHOT, *FEW_SHOT)), (ONE_SHOT, "gfx1030")],
    ids=lambda value: getattr(value, "name", value),
)
def test_device_code_of_examples_compiles_and_is_not_reported_as_correct(
    judge: Judge, example: Example, arch: str
) -> None:
    found = judge(example.kernel, arch)
    assert (found.build, found.outcome, found.tests_passed) == (BuildStatus.BUILT, Outcome.INFRA_ERROR, 0)
    assert found.message.startswith(f"Device code compiled for {arch}; the host part was not. Not run")


def test_the_kernel_of_the_readme_compiles(judge: Judge) -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (kernel,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert judge(kernel).build is BuildStatus.BUILT
    found = judge(kernel.replace("fmaxf(x[i], 0.0f)", "fmaxf(x[i])"))
    assert "error: no matching function for call to 'fmaxf'" in found.message


def test_compile_error_has_its_line_and_no_paths(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("* 3.0f;", "* 3.0f"))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "cuda.cu:8:" in found.message
    assert "expected ';'" in found.message
    assert "/tmp" not in found.message


def test_instruction_that_the_architecture_lacks_is_a_compile_error(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("(a[i] - b[i])", "(__builtin_amdgcn_fdot2({}, {}, 0.f, false) + a[i])")
    assert judge(kernel, "gfx90a").build is BuildStatus.BUILT
    assert judge(kernel, "gfx900").outcome is Outcome.COMPILE_ERROR


@pytest.mark.parametrize("arch", ["gfx90f", "gfx9999"])
def test_architecture_unknown_to_the_compiler_is_not_an_error_of_the_kernel(judge: Judge, arch: str) -> None:
    with pytest.raises(MissingPrerequisite, match=arch) as caught:
        judge(ONE_SHOT.kernel, arch)
    assert "gfx90a" in str(caught.value)


def test_include_of_other_files_finds_nothing(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("#include <hip/hip_runtime.h>", '#include "/etc/passwd"'))
    assert found.outcome is Outcome.COMPILE_ERROR

"""Device code compiled for real, by the build service as a judge asks it, where there is hipcc. Nothing is run."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator

import pytest

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_core.types import (
    BuildStatus,
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Example,
    Outcome,
    sha256_text,
)
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_hip.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_local.config import LocalConfig
from kernelrl_plugin_local.evaluator import LocalEvaluator

pytestmark = pytest.mark.skipif(shutil.which("hipcc") is None, reason="needs hipcc")

Judge = Callable[..., Evaluation]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    """Compiles a kernel for an architecture."""
    loop = asyncio.new_event_loop()
    evaluator = LocalEvaluator(LocalConfig(workers=1))
    task = ONE_SHOT.reference

    def run(kernel: str, arch: str = "gfx90a") -> Evaluation:
        request = EvaluationRequest(
            *("task", task, sha256_text(task), kernel, sha256_text(kernel)),
            *("hip", {"arch": arch, "mode": "compile"}, EvaluationSettings(trials=2), "1" * 32, API_VERSION),
        )
        return loop.run_until_complete(evaluator.evaluate(request))

    yield run
    loop.run_until_complete(evaluator.aclose())
    loop.close()


@pytest.mark.parametrize(
    ("example", "arch"),
    [*((example, "gfx90a") for example in (ONE_SHOT, *FEW_SHOT)), (ONE_SHOT, "gfx1030")],
    ids=lambda value: getattr(value, "name", value),
)
def test_the_device_code_of_the_examples_compiles_and_is_not_called_correct(
    judge: Judge, example: Example, arch: str
) -> None:
    found = judge(example.kernel, arch)
    assert (found.build, found.outcome, found.tests_passed) == (BuildStatus.BUILT, Outcome.INFRA_ERROR, 0)
    assert found.message.startswith(f"Device code compiled for {arch}; the host part was not. Not run")


def test_a_mistake_is_told_with_its_line_and_without_paths(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("* 3.0f;", "* 3.0f"))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "cuda.cu:8:" in found.message
    assert "expected ';'" in found.message
    assert "/tmp" not in found.message


def test_instructions_that_the_architecture_lacks_are_a_mistake(judge: Judge) -> None:
    kernel = ONE_SHOT.kernel.replace("(a[i] - b[i])", "(__builtin_amdgcn_fdot2({}, {}, 0.f, false) + a[i])")
    assert judge(kernel, "gfx90a").build is BuildStatus.BUILT
    assert judge(kernel, "gfx900").outcome is Outcome.COMPILE_ERROR


@pytest.mark.parametrize("arch", ["gfx90f", "gfx9999"])
def test_an_architecture_that_the_compiler_does_not_know_is_not_the_mistake_of_the_kernel(
    judge: Judge, arch: str
) -> None:
    with pytest.raises(MissingPrerequisite, match=arch) as caught:
        judge(ONE_SHOT.kernel, arch)
    assert "gfx90a" in str(caught.value)


def test_files_outside_are_denied_and_named(judge: Judge) -> None:
    found = judge(ONE_SHOT.kernel.replace("#include <hip/hip_runtime.h>", '#include "/etc/passwd"'))
    assert found.outcome is Outcome.COMPILE_ERROR
    assert "denied" in found.message

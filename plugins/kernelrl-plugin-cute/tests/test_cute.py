"""The backend `cute` without a GPU: facts, options and, where the wheel is installed, compilation."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelrl_core.api.backends import Example
from kernelrl_core.api.checkers import KernelFact
from kernelrl_plugin_cute.backend import CuteBackend
from kernelrl_plugin_cute.config import CuteConfig
from kernelrl_plugin_cute.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_cute.runner import CuteRunner

EXAMPLES = (ONE_SHOT, *FEW_SHOT)
needs_wheel = pytest.mark.skipif(
    importlib.util.find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"
)

HEAD = "import cutlass.cute as cute\n\n"
KERNEL = "@cute.kernel\ndef k(a):\n    pass\n\n@cute.jit\ndef launch(a):\n    k(a).launch(grid=(1,), block=(1,))\n\n"
MODEL = "class ModelNew:\n    def forward(self, x):\n        {}\n"

CHECK = """
import json, sys
from kernelrl_plugin_cute.runner import CuteRunner
runner = CuteRunner()
try:
    runner.load(sys.argv[1], {})
    print(json.dumps(["compiled", runner.compile_check(sys.modules["candidate"], {})]))
except Exception as error:
    print(json.dumps([runner.classify(error), str(error)]))
"""


def compile_check(source: str, directory: Path) -> tuple[str, str]:
    """Kind and text of the report on a source, from a process with the runner's environment."""
    path = directory / "candidate.py"
    path.write_text(source)
    environment = {**os.environ, "HOME": str(directory), **CuteRunner().environment("compile", {})}
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kind, text = json.loads(done.stdout.splitlines()[-1])
    return kind, text


def kernels(source: str) -> tuple[KernelFact, ...]:
    return CuteBackend(CuteConfig()).source_facts(source).kernels


def facts(source: str) -> dict[str, tuple[bool, bool]]:
    return {kernel.name: (kernel.launched, kernel.reached) for kernel in kernels(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HEAD + KERNEL + MODEL.format("launch(x)"), (True, True)),
        (HEAD + KERNEL + MODEL.format("return x"), (True, False)),
        (HEAD + KERNEL + "built = cute.compile(launch)\n\n" + MODEL.format("built(x)"), (True, True)),
        (HEAD + KERNEL.partition("@cute.jit")[0] + MODEL.format("return x"), (False, False)),
        ("from cutlass import cute as c\n\n@c.kernel\ndef k(a):\n    pass\n", (False, False)),
    ],
)
def test_kernel_is_found_with_its_launches(source: str, expected: tuple[bool, bool]) -> None:
    assert facts(source) == {"k": expected}


def test_host_function_is_not_a_kernel() -> None:
    assert facts(HEAD + "@cute.jit\ndef launch(a):\n    pass\n\n" + MODEL.format("launch(x)")) == {}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_kernels_of_examples_are_reached_from_forward(example: Example) -> None:
    assert [kernel.reached for kernel in kernels(example.kernel)] == [True]


def test_gpu_is_required_only_where_configured() -> None:
    assert CuteConfig(mode="gpu").requires().gpu == "nvidia"
    assert CuteConfig().requires().gpu == ""


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "mode"),
    [("auto", True, "gpu"), ("auto", False, "compile"), ("gpu", False, "gpu"), ("compile", True, "compile")],
)
def test_mode_auto_follows_the_machine(wanted: str, has_gpu: bool, mode: str) -> None:
    assert CuteRunner().mode({"mode": wanted}, has_gpu) == mode


def test_arch_is_set_only_without_a_gpu() -> None:
    assert "CUTE_DSL_ARCH" in CuteRunner().environment("compile", {})
    assert "CUTE_DSL_ARCH" not in CuteRunner().environment("gpu", {})


@needs_wheel
@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_examples_compile(example: Example, tmp_path: Path) -> None:
    kind, text = compile_check(example.kernel, tmp_path)
    (kernel,) = kernels(example.kernel)
    assert (kind, kernel.name in text) == ("compiled", True), text
    assert "not compiled" not in text


@needs_wheel
@pytest.mark.slow
def test_kernel_compiled_only_by_forward_is_reported_as_not_compiled(tmp_path: Path) -> None:
    kind, text = compile_check(ONE_SHOT.kernel.replace("in DTYPES.items()", "in ()"), tmp_path)
    assert kind == "compiled"
    assert "not compiled, because importing the module does not: scaled_difference_kernel" in text


@needs_wheel
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("a[i].to", "missing[i].to", "compile"),
        ("a[i].to", "a[i, i, i].to", "compile"),
        ("cute.arch.thread_idx", "cute.arch.no_such_thing", "compile"),
        ("class ModelNew", "raise ValueError('mine')\nclass ModelNew", "error"),
        # A call of a compiled function: it fails for lack of a driver.
        (
            "class ModelNew",
            "x = from_dlpack(torch.zeros(4)).mark_layout_dynamic()\nCOMPILED[torch.float32](x, x, x)\n\nclass ModelNew",
            "error",
        ),
    ],
)
def test_compiler_errors_are_classified_as_compile_errors(right: str, wrong: str, kind: str, tmp_path: Path) -> None:
    assert compile_check(ONE_SHOT.kernel.replace(right, wrong), tmp_path)[0] == kind

"""The backend `tilelang` without a GPU: facts, options and, where the wheel is installed, compilation."""

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
from kernelrl_plugin_tilelang.backend import TileLangBackend
from kernelrl_plugin_tilelang.config import TileLangConfig
from kernelrl_plugin_tilelang.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_tilelang.runner import TileLangRunner

EXAMPLES = (ONE_SHOT, *FEW_SHOT)
needs_wheel = pytest.mark.skipif(importlib.util.find_spec("tilelang") is None, reason="tilelang is not installed")

HEAD = "import tilelang\nimport tilelang.language as T\n\n"
JIT = (
    "@tilelang.jit(out_idx=[-1])\ndef k(n=4):\n    @T.prim_func\n    def inner(a):\n        pass\n    return inner\n\n"
)
PRIM = "def build(n):\n    @T.prim_func\n    def k(a):\n        pass\n    return tilelang.compile(k)\n\n"
MODEL = "class ModelNew:\n    def forward(self, x):\n        {}\n"

CHECK = """
import json, sys
from kernelrl_plugin_tilelang.runner import TileLangRunner
runner = TileLangRunner()
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
    environment = {**os.environ, "HOME": str(directory), **TileLangRunner().environment("compile", {})}
    done = subprocess.run(
        [sys.executable, "-c", CHECK, str(path)], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    kind, text = json.loads(done.stdout.splitlines()[-1])
    return kind, text


def kernels(source: str) -> tuple[KernelFact, ...]:
    return TileLangBackend(TileLangConfig()).source_facts(source).kernels


def facts(source: str) -> dict[str, tuple[bool, bool]]:
    return {kernel.name: (kernel.launched, kernel.reached) for kernel in kernels(source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HEAD + JIT + MODEL.format("return k()(x)"), (True, True)),
        (HEAD + JIT + MODEL.format("return x"), (False, False)),
        (HEAD + JIT + "built = k()\n\n" + MODEL.format("return x"), (True, False)),
        (HEAD + JIT + "built = k()\n\n" + MODEL.format("return built(x)"), (True, True)),
        (HEAD + PRIM + MODEL.format("return build(4)(x)"), (True, True)),
        (HEAD + PRIM + MODEL.format("return x"), (True, False)),
        ("from tilelang import language\n\n@language.prim_func\ndef k(a):\n    pass\n", (False, False)),
    ],
)
def test_kernel_is_found_with_its_uses(source: str, expected: tuple[bool, bool]) -> None:
    assert facts(source) == {"k": expected}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_kernels_of_examples_are_reached_from_forward(example: Example) -> None:
    assert [kernel.reached for kernel in kernels(example.kernel)] == [True]


def test_gpu_is_required_only_where_configured() -> None:
    assert TileLangConfig(mode="gpu").requires().gpu == "nvidia"
    assert TileLangConfig().requires().gpu == ""


@pytest.mark.parametrize(
    ("wanted", "has_gpu", "mode"),
    [("auto", True, "gpu"), ("auto", False, "compile"), ("gpu", False, "gpu"), ("compile", True, "compile")],
)
def test_mode_auto_follows_the_machine(wanted: str, has_gpu: bool, mode: str) -> None:
    assert TileLangRunner().mode({"mode": wanted}, has_gpu) == mode


def test_target_is_set_only_without_a_gpu() -> None:
    assert "TILELANG_DEFAULT_TARGET" in TileLangRunner().environment("compile", {})
    assert "TILELANG_DEFAULT_TARGET" not in TileLangRunner().environment("gpu", {})


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
def test_kernel_that_needs_sizes_is_reported_as_not_compiled(tmp_path: Path) -> None:
    kind, text = compile_check(ONE_SHOT.kernel.replace("block: int = 1024", "block: int"), tmp_path)
    assert kind == "compiled"
    assert "not compiled, because sizes or tensors are needed: scaled_difference" in text


@needs_wheel
@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong", "kind"),
    [
        ("(a[tile", "(missing[tile", "compile"),
        ("T.ceildiv", "T.no_such_thing", "compile"),
        ("class ModelNew", "raise ValueError('mine')\nclass ModelNew", "error"),
    ],
)
def test_compiler_errors_are_classified_as_compile_errors(right: str, wrong: str, kind: str, tmp_path: Path) -> None:
    assert compile_check(ONE_SHOT.kernel.replace(right, wrong), tmp_path)[0] == kind

"""`TritonBackend`: its examples, and the kernels and launches that it finds in a source."""

from __future__ import annotations

import pytest

from kernelrl_core.api.backends import Example
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_triton.backend import TritonBackend
from kernelrl_plugin_triton.config import TritonConfig
from kernelrl_plugin_triton.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_triton.kernels import find_kernels
from kernelrl_plugin_triton.runner import TritonRunner
from kernelrl_testing.fixtures import Evaluate
from kernelrl_testing.values import make_request

HEAD = "import triton\nimport triton.language as tl\n\n"
KERNEL = "@triton.jit\ndef k(x, n: tl.constexpr):\n    pass\n\n"
MODEL = "class ModelNew:\n    def forward(self, x):\n        {}\n"


def facts(source: str) -> dict[str, tuple[bool, bool]]:
    return {kernel.name: (kernel.launched, kernel.reached) for kernel in find_kernels(source)}


@pytest.mark.slow
@pytest.mark.parametrize("example", [ONE_SHOT, *FEW_SHOT], ids=lambda example: example.name)
def test_examples_are_correct(evaluate: Evaluate, example: Example) -> None:
    options = {"mode": "interpreter"}
    found = evaluate(make_request(example.kernel, example.reference, "triton", backend_options=options))
    assert found.outcome is Outcome.CORRECT


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (HEAD + KERNEL + MODEL.format("k[(1,)](x, 8)"), (True, True)),
        (HEAD + KERNEL + MODEL.format("return x"), (False, False)),
        (HEAD + KERNEL + "def go(x):\n    k[(1,)](x, 8)\n\n" + MODEL.format("go(x)"), (True, True)),
        (HEAD + KERNEL + "def go(x):\n    k[(1,)](x, 8)\n\n" + MODEL.format("return x"), (True, False)),
        (HEAD + KERNEL + "other = k\n\n" + MODEL.format("other[(1,)](x, 8)"), (True, True)),
        (HEAD + KERNEL + MODEL.format("k.run(x, 8, grid=(1,))"), (True, True)),
        ("import triton as t\n\n@t.jit\ndef k(x):\n    pass\n\n" + MODEL.format("k[(1,)](x)"), (True, True)),
        ("from triton import jit\n\n@jit\ndef k(x):\n    pass\n\n" + MODEL.format("k[(1,)](x)"), (True, True)),
        (
            HEAD + "@triton.autotune(configs=[], key=[])\n" + KERNEL + MODEL.format("launch = k[(1,)]; launch(x, 8)"),
            (True, True),
        ),
    ],
)
def test_kernel_is_found_with_its_launches(source: str, expected: tuple[bool, bool]) -> None:
    assert facts(source) == {"k": expected}


def test_device_function_counts_as_launched_with_its_caller() -> None:
    source = HEAD + "@triton.jit\ndef helper(x):\n    pass\n\n@triton.jit\ndef k(x):\n    helper(x)\n\n"
    assert facts(source + MODEL.format("k[(1,)](x)")) == {"helper": (True, True), "k": (True, True)}


@pytest.mark.parametrize("source", ["", "\0", "(" * 100_000, "def (", "x = '" + "a" * 1_000_000 + "'"])
def test_unparsable_source_has_no_kernels(source: str) -> None:
    assert find_kernels(source) == ()


def test_gpu_is_required_only_where_configured() -> None:
    assert TritonConfig(mode="gpu").requires().gpu == "any"
    assert TritonConfig().requires().gpu == ""
    assert TritonBackend(TritonConfig()).source_facts(HEAD).kernels == ()


def test_compiler_errors_are_distinguished_from_runtime_errors() -> None:
    import ast

    from triton.compiler.errors import CompilationError
    from triton.runtime.errors import OutOfResources, PTXASError

    classify = TritonRunner().classify
    placed = CompilationError(
        "def k(x):\n    tl.arange(0, 3)", ast.parse("x").body[0], "arange's range must be a power of 2"
    )
    assert str(placed).startswith("at 1:0:")
    for error in (placed, PTXASError("ptxas fatal: block"), RuntimeError("PassManager::run failed")):
        assert classify(error) == "compile"
    for error in (OutOfResources(1, 2, "shared memory"), RuntimeError("at 47:22: block"), KeyError("attribute exists")):
        assert classify(error) == "error"

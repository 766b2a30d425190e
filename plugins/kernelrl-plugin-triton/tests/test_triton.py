"""The driver half of the backend: its examples, and what it sees in a source."""

from __future__ import annotations

import asyncio

import pytest

from kernelrl_core.types import EvaluationRequest, EvaluationSettings, Example, Outcome, sha256_text
from kernelrl_core.version import API_VERSION
from kernelrl_plugin_triton.backend import TritonBackend
from kernelrl_plugin_triton.config import TritonConfig
from kernelrl_plugin_triton.examples import FEW_SHOT, ONE_SHOT
from kernelrl_plugin_triton.kernels import find_kernels
from kernelrl_plugin_triton.runner import TritonRunner

HEAD = "import triton\nimport triton.language as tl\n\n"
KERNEL = "@triton.jit\ndef k(x, n: tl.constexpr):\n    pass\n\n"
MODEL = "class ModelNew:\n    def forward(self, x):\n        {}\n"


def facts(source: str) -> dict[str, tuple[bool, bool]]:
    return {kernel.name: (kernel.launched, kernel.reached) for kernel in find_kernels(source)}


@pytest.mark.slow
def test_every_example_is_correct() -> None:
    from kernelrl_plugin_local.config import LocalConfig
    from kernelrl_plugin_local.evaluator import LocalEvaluator

    def request(example: Example) -> EvaluationRequest:
        return EvaluationRequest(
            task_id=example.name,
            task_source=example.reference,
            task_sha256=sha256_text(example.reference),
            source=example.kernel,
            source_sha256=sha256_text(example.kernel),
            backend="triton",
            backend_options={"mode": "interpreter"},
            settings=EvaluationSettings(),
            seed="00" * 16,
            api_version=API_VERSION,
        )

    async def outcomes() -> list[Outcome]:
        evaluator = LocalEvaluator(LocalConfig(workers=1))
        try:
            return [(await evaluator.evaluate(request(example))).outcome for example in (ONE_SHOT, *FEW_SHOT)]
        finally:
            await evaluator.aclose()

    assert set(asyncio.run(outcomes())) == {Outcome.CORRECT}


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
def test_a_kernel_is_seen_with_its_launches(source: str, expected: tuple[bool, bool]) -> None:
    assert facts(source) == {"k": expected}


def test_a_device_function_is_launched_with_its_caller() -> None:
    source = HEAD + "@triton.jit\ndef helper(x):\n    pass\n\n@triton.jit\ndef k(x):\n    helper(x)\n\n"
    assert facts(source + MODEL.format("k[(1,)](x)")) == {"helper": (True, True), "k": (True, True)}


@pytest.mark.parametrize("source", ["", "\0", "(" * 100_000, "def (", "x = '" + "a" * 1_000_000 + "'"])
def test_a_source_that_defeats_the_parser_has_no_kernels(source: str) -> None:
    assert find_kernels(source) == ()


def test_a_gpu_is_required_only_when_asked_for() -> None:
    assert TritonConfig(mode="gpu").requires().gpu == "any"
    assert TritonConfig().requires().gpu == ""
    assert TritonBackend(TritonConfig()).source_facts(HEAD).kernels == ()


def test_what_the_compiler_raises_is_told_from_what_the_kernel_does() -> None:
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

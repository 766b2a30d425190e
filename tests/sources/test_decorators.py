"""Kernels marked by a decorator: found, launched, reached."""

from __future__ import annotations

import pytest

from kernelrl_core.sources.decorators import decorated_kernels

DECORATORS = ("lang.jit", "lang.dsl.kernel")
MODEL = "class ModelNew:\n    def forward(self, x):\n        {}\n"
KERNEL = "import lang\n\n@lang.jit\ndef k(a):\n    pass\n\n"
NESTED = "import lang\n\n@lang.jit\ndef outer(a):\n    @lang.jit\n    def inner(b):\n        pass\n"


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import lang", "lang.jit"),
        ("import lang", "lang.jit(stages=[2])"),
        ("import lang as l", "l.jit"),
        ("from lang import jit", "jit"),
        ("from lang import jit as j", "j()"),
        ("import lang.dsl", "lang.dsl.kernel"),
        ("import lang.dsl as d", "d.kernel"),
        ("from lang import dsl", "dsl.kernel"),
        ("def f():\n    from lang.dsl import kernel", "kernel"),
    ],
)
def test_a_decorator_is_found_with_every_form_of_import(imports: str, decorator: str) -> None:
    (kernel,) = decorated_kernels(f"{imports}\n\n@{decorator}\ndef k(a):\n    pass\n", DECORATORS)
    assert kernel.name == "k"


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import triton", "triton.jit"),
        ("import lang", "lang.other"),
        ("from other import jit", "jit"),
        ("import other as lang", "lang.jit"),
        ("import lang", "lang.jit()()"),
        ("import lang", "[lang][0].jit"),
        ("import lang", "lang.dsl"),
    ],
)
def test_a_function_with_another_decorator_is_not_a_kernel(imports: str, decorator: str) -> None:
    assert decorated_kernels(f"{imports}\n\n@{decorator}\ndef k(a):\n    pass\n", DECORATORS) == ()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (KERNEL + MODEL.format("k(x)"), (True, True)),
        (KERNEL + MODEL.format("return x"), (False, False)),
        (KERNEL + "built = k()\n\n" + MODEL.format("return x"), (True, False)),
        (KERNEL + "built = k()\n\n" + MODEL.format("built(x)"), (True, True)),
        (KERNEL + "def launch(x):\n    k(x)\n\n" + MODEL.format("launch(x)"), (True, True)),
    ],
)
def test_uses_of_a_kernel_are_found(source: str, expected: tuple[bool, bool]) -> None:
    (kernel,) = decorated_kernels(source, DECORATORS)
    assert (kernel.launched, kernel.reached) == expected
    assert kernel.line == 4


@pytest.mark.parametrize(("outermost", "names"), [(True, ["outer"]), (False, ["outer", "inner"])])
def test_a_nested_kernel_is_listed_unless_only_outermost_kernels_are_requested(
    outermost: bool, names: list[str]
) -> None:
    assert [kernel.name for kernel in decorated_kernels(NESTED, DECORATORS, outermost=outermost)] == names


@pytest.mark.parametrize("source", ["", "\0", "(" * 100_000, "def ("])
def test_a_source_that_cannot_be_parsed_has_no_kernels(source: str) -> None:
    assert decorated_kernels(source, DECORATORS) == ()


@pytest.mark.parametrize("outermost", [True, False])
def test_a_deeply_nested_source_does_not_exhaust_the_stack(outermost: bool) -> None:
    source = f"import lang\n\nx = 1{' + 1' * 1500}\n\n@lang{'.jit' * 1500}\n@lang.jit\ndef k(a):\n    pass\n"
    assert [kernel.name for kernel in decorated_kernels(source, DECORATORS, outermost=outermost)] == ["k"]

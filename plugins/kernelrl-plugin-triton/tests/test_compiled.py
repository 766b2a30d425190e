"""Python constructs that Triton does not compile in a kernel."""

from __future__ import annotations

import ast
import textwrap

import pytest

from kernelrl_plugin_triton.compiled import not_compiled


def refused(body: str) -> list[str]:
    function = ast.parse(f"def k(x_ptr, n, B: tl.constexpr):\n{textwrap.indent(body, '    ')}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    return [why for _, why in not_compiled(function)]


@pytest.mark.parametrize(
    "body",
    [
        "parts = []\nfor i in tl.static_range(B):\n    parts = parts + [i]\n    f(parts[i])",
        "pair = (0, 0)\nfor i in range(n):\n    pair = (pair[0] + i, pair[1] + 1)",
        "for i in range(n):\n    pair = (i, i)\n    three = pair + (i,)",
        "total = 0\nfor i in range(n):\n    total += i\n    total = total + i",
        "x = x_ptr[:, None] + tl.arange(0, B)[None, :]",
        "HALF = B // 2\nx = pair[HALF - 1]",
        "i = 0\nwhile i < n:\n    i += 1\nx = pair[B]",
        "for i in range(n):\n    f(i)\nfor i in tl.static_range(2):\n    f(pair[i])",
        "x = [f(each) for each in pair]",
    ],
)
def test_supported_constructs_are_accepted(body: str) -> None:
    assert refused(body) == []


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("for i in range(n):\n    break", "Break"),
        ("x = {}", "Dict"),
        ("x = sum(i for i in pair)", "GeneratorExp"),
        ("def f(x):\n    return x", "FunctionDef"),
        ("x = [f(i) for i in range(B)]", "only tuple comprehensions"),
        ("parts = []\nfor i in range(n):\n    parts = parts + [i]", "parts changes its type"),
        ("parts = ()\nfor i in range(B):\n    parts += (i,)", "parts changes its type"),
        (
            "parts = []\nwhile f():\n    more = [1]\n    grown = more + parts\n    parts = grown",
            "parts changes its type",
        ),
        ("parts = []\nparts.append(n)", "append"),
        ("parts[0] = n", "__setitem__"),
        ("for i in range(B):\n    f(parts[B - 1 - i])", "only at run time"),
        ("x = parts[n]", "only at run time"),
        ("p = tl.program_id(0)\nq = p + 1\nx = parts[q]", "only at run time"),
    ],
)
def test_unsupported_constructs_are_refused_with_a_reason(body: str, why: str) -> None:
    assert any(why in found for found in refused(body))

"""Reading sources that were made to keep their reader busy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.kernel_facts import extension_facts
from kernelrl_build.lexing import Unreadable, tokens
from kernelrl_build.screening import Denied, screen

_SIZE = 150_000
_DEPTH = 20_000


def test_a_raw_string_or_comment_that_nobody_closes_is_refused() -> None:
    for text in ('auto s = R"x(abc', "int a; /* abc"):
        with pytest.raises(Unreadable):
            tokens(text)


@pytest.mark.parametrize("piece", ['R"(', 'R"aaaaaaaaaaaa(', "/* ", "#/* \n", "#define X __global__ "])
def test_reading_takes_time_in_proportion_to_the_text(piece: str) -> None:
    text = (piece * _SIZE)[:_SIZE]
    started = time.process_time()
    extension_facts(f"load_inline(name='x', cpp_sources='', cuda_sources={text!r})", "cuda")
    assert time.process_time() - started < 10.0


def _request(**given: Any) -> InlineRequest:
    fields: dict[str, Any] = {
        **dict.fromkeys(("cpp_sources", "device_sources", "functions", "cflags", "device_flags", "ldflags"), ()),
        "language": "cpp",
        "name": "x",
        "include_paths": (),
        "arch": (),
    }
    return InlineRequest(**{**fields, **given})


@pytest.mark.parametrize(
    "text",
    [
        f"{'(' * _DEPTH}1{')' * _DEPTH}",
        "-" * _DEPTH + "1",
        "1" + "+1" * _DEPTH,
        "A<" * _DEPTH,
        "f(1, " * _DEPTH,
        "if (1) " * _DEPTH,
    ],
    ids=["brackets", "signs", "a sum", "templates", "calls", "conditions"],
)
def test_depths_that_compilers_drown_in_are_refused_before_one_is_started(text: str) -> None:
    with pytest.raises(Denied, match="at most"):
        screen(_request(cpp_sources=(f"int x = {text};",)))


def test_a_long_table_and_much_code_are_no_depth() -> None:
    table = f"const int table[] = {{{', '.join(map(str, range(30_000)))}}};"
    screen(_request(cpp_sources=(table + "void f(int a) { if (a < 3 || a << 2 > 1) { a = -a; } }\n" * 3_000,)))


@pytest.mark.parametrize("name", ["f); g(", 'f\n#include "/etc/passwd"\n', "", "f()"])
def test_a_bound_function_must_have_the_name_of_a_function(name: str) -> None:
    with pytest.raises(Denied, match="functions"):
        screen(_request(functions=((name, name),)))


def test_qualified_names_and_instances_can_be_bound() -> None:
    screen(_request(functions=(("ns::f", "doc"), ("g<float, 4>", "doc"))))

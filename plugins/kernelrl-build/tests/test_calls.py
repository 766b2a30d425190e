"""Reading the calls of `load_inline` off a source."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_build.calls import InlineCall, find_inline_calls


def calls(source: str) -> tuple[InlineCall, ...]:
    return find_inline_calls(textwrap.dedent(source))


def test_names_that_are_assigned_once_are_followed() -> None:
    (call,) = calls(
        '''
        from torch.utils.cpp_extension import load_inline
        SOURCE = """int f();"""
        ext = load_inline(name="a", cpp_sources=SOURCE, functions=["f"], extra_cflags=["-O3"])
        '''
    )
    assert (call.name, call.complete) == ("a", True)
    assert (call.cpp_sources[0].text, call.cpp_sources[0].line) == ("int f();", 3)
    assert call.functions == (("f", "f"),)
    assert call.cflags == ("-O3",)


def test_an_alias_and_an_attribute_are_the_same_function() -> None:
    found = calls(
        """
        import torch.utils.cpp_extension as e
        from torch.utils.cpp_extension import load_inline as build
        a = e.load_inline("a", "x")
        b = build("b", "y")
        """
    )
    assert [call.name for call in found] == ["a", "b"]


def test_a_name_that_is_assigned_twice_is_not_read() -> None:
    (call,) = calls(
        """
        s = "a"
        s = "b"
        load_inline(name="x", cpp_sources=s)
        """
    )
    assert not call.complete


def test_constant_text_is_put_together() -> None:
    (call,) = calls(
        """
        n = 4
        head = "#define N " + f"{n}"
        load_inline(name="x", cpp_sources=[head, "b".replace("b", "c").strip()], functions={"f": "text"})
        """
    )
    assert [piece.text for piece in call.cpp_sources] == ["#define N 4", "c"]
    assert call.functions == (("f", "text"),)
    assert call.complete


def test_an_argument_that_changes_the_build_and_is_unknown_makes_the_call_incomplete() -> None:
    (call,) = calls('load_inline(name="x", cpp_sources="a", no_implicit_headers=True)')
    assert not call.complete


def test_a_source_that_does_not_parse_has_no_calls() -> None:
    assert find_inline_calls("def (") == ()


@given(st.text(max_size=200))
def test_any_text_is_read_without_an_exception(text: str) -> None:
    find_inline_calls(f"load_inline(name='x', cpp_sources={text!r}, functions={text!r})")
    find_inline_calls(text)


@pytest.mark.parametrize(
    "arguments",
    [
        'name="x", cpp_sources=7',
        'name=["x"], cpp_sources="int f();"',
        'name="x", cpp_sources="int f();", functions=[["f"]]',
        'name="x", cpp_sources="int f();", functions={"f": 1}',
        'name="x", cpp_sources="int f();", functions={"f": []}',
        'name="x", cpp_sources=["a", 3]',
        'name="x", cpp_sources="int f();", extra_cflags=[["-O2"]]',
        'name="x", cpp_sources="int f();", functions={["f"]: "f"}',
        'name="x", cpp_sources=f"{0x1' + "0" * 9000 + '}"',
    ],
)
def test_arguments_of_other_kinds_are_left_to_the_call(arguments: str) -> None:
    (call,) = calls(f"load_inline({arguments})")
    assert not call.complete


@pytest.mark.parametrize("joined", ["x{0} + x{0}", "[x{0}, x{0}]", 'f"{{x{0}}}{{x{0}}}"', 'x{0}.replace("a", x{0})'])
def test_texts_that_double_again_and_again_are_not_put_together(joined: str) -> None:
    lines = ["x0 = 'aaaaaaaa'", *(f"x{index + 1} = {joined.format(index)}" for index in range(50))]
    lines.append("load_inline(name='x', cpp_sources=x50, extra_cflags=x50, functions=x50)")
    (call,) = find_inline_calls("\n".join(lines))
    assert not call.complete
    assert sum(len(piece.text) for piece in call.cpp_sources) < 2_000_000


def test_one_long_text_in_many_calls_is_not_read_many_times() -> None:
    source = f"text = '{'a' * 100_000}'\n" + "load_inline(name='x', cpp_sources=text)\n" * 3000
    found = find_inline_calls(source)
    assert sum(len(piece.text) for call in found for piece in call.cpp_sources) <= 1_000_000


@given(st.text(alphabet="load_inline(nm=\"'x+f{}[]0,.:sc) \n", max_size=80))
def test_no_source_raises(text: str) -> None:
    find_inline_calls(f"y = load_inline({text})")

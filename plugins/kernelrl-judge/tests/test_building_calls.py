"""Reading the calls of `load_inline` off a source."""

from __future__ import annotations

import textwrap

from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.building.calls import find_inline_calls


def calls(source: str) -> tuple:
    return find_inline_calls(textwrap.dedent(source))


def test_names_that_are_assigned_once_are_followed() -> None:
    (call,) = calls(
        '''
        from torch.utils.cpp_extension import load_inline
        SOURCE = """int f();"""
        ext = load_inline(name="a", cpp_sources=SOURCE, functions=["f"], extra_cflags=["-O3"])
        '''
    )
    assert (call.name, call.target, call.complete) == ("a", "ext", True)
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

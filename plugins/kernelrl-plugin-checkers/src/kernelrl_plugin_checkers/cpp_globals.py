"""What stands outside of functions in C++, and honest kernels do not need."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

from kernelrl_plugin_checkers.cpp_names import CppNames, Defined, Seen
from kernelrl_plugin_checkers.cpp_tokens import Token
from kernelrl_plugin_checkers.cpp_vocabulary import ROOTS, UNQUALIFIED

__all__ = ["HANDLE", "unusual_outside"]

HANDLE = re.compile(r"(?:cuda|hip)DeviceProp\w*|(?:cuda|hip|cublas|hipblas|cudnn)(?:Lt)?(?:Handle|Stream|Event)_t")
"""Types of what a library hands out, and of device properties: a source may keep them."""
_ONLY_TYPES = frozenset(
    {"namespace", "using", "typedef", "static_assert", "template", "struct", "class", "enum", "union", "friend"}
)
_ON_DEVICE = frozenset({"__constant__", "__device__", "__managed__", "__shared__"})


def unusual_outside(directives: Sequence[Token], names: CppNames, defined: Defined) -> Iterator[Seen]:
    """What stands outside of functions."""
    for offset in names.uneven:
        yield offset, "branches of the preprocessor that open and close braces unevenly"
    starts = [token.start for token in directives]
    for first, last in names.heads:
        index = bisect.bisect_left(starts, first)
        if index < len(starts) and starts[index] < last:
            yield starts[index], "a directive within the head of a function"
    for name, offset in names.declared.items():
        if name not in defined.functions and name not in UNQUALIFIED:
            yield offset, f"{name[:60]} is declared, and the source does not define it"
        elif name not in defined.functions:
            yield offset, f"{name[:60]} is declared, which belongs to a library"
    for name in names.namespaces & ROOTS.keys():
        if name in ("std", "at", "torch", "c10", "py", "pybind11"):
            yield 0, f"namespace {name} is opened, which belongs to a library"
    for _, statement in names.globals:
        note = _of_global(statement)
        if note:
            yield statement[0].start, note


def _of_global(statement: Sequence[Token]) -> str | None:
    """What is wrong with a variable outside of functions: what it keeps, or what runs when the library is loaded."""
    words = {token.text for token in statement[:12] if token.kind == "name"}
    if statement[0].text in _ONLY_TYPES or words & _ON_DEVICE or len(statement) < 2 or not words:
        return None
    if statement[0].text == "extern" and len(words) == 1:
        return None
    if words & {"constexpr", "Tensor"} or any(HANDLE.fullmatch(word) for word in words):
        return None
    if "const" not in words:
        return "a variable outside of functions; pass what a call needs as an argument"
    if any(token.text == "(" for token in statement):
        return "a call outside of functions; compute values in the functions that use them"
    return None

"""Functions that a CUDA source binds for Python."""

from __future__ import annotations

import re
from collections.abc import Sequence

import attrs

from kernelrl_plugin_raicl.rewriting.pair import Unrewritable

__all__ = ["Bound", "Extension", "read_extension"]

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
  | (?P<string>R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')
  | (?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.'])*)
  | (?P<mark>::|->|[^\s\w])
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_TYPES = frozenset(
    {"torch", "at", "c10", "std", "const", "Tensor", "vector", "optional", "tuple", "string", "array"}
    | {"int", "long", "unsigned", "float", "double", "bool", "void", "size_t", "int64_t", "int32_t", "uint8_t"}
    | {"IntArrayRef", "ArrayRef", "Scalar", "ScalarType", "TensorOptions", "Device", "string_view"}
    | {"py", "pybind11", "object", "list", "dict", "map"}
)
"""Names in types that torch/extension.h declares."""
_LINKAGE = frozenset({"static", "inline", "__forceinline__"})


@attrs.frozen
class _Token:
    kind: str
    text: str
    start: int
    end: int


@attrs.frozen
class Bound:
    """A function that Python can call."""

    name: str
    """Name in C++."""
    parameters: tuple[str, ...]
    """Names of the parameters."""
    declaration: str
    """Declaration with the semicolon, without default arguments."""


@attrs.frozen
class Extension:
    """A source without its bindings."""

    source: str
    functions: dict[str, Bound]
    """Name in Python -> function."""


def read_extension(source: str) -> Extension:
    """Split a source into its kernels and what it binds with `PYBIND11_MODULE`.

    `load_inline` writes the bindings itself, from the declarations. A bound function must be callable from another
    file, so `static` and `inline` are removed.

    Raises:
        Unrewritable: there are no bindings, or they bind anything but plain functions.
    """
    found = _tokens(source)
    at = next((i for i, token in enumerate(found) if token.text == "PYBIND11_MODULE"), None)
    if at is None:
        raise Unrewritable("CUDA source binds nothing with PYBIND11_MODULE")
    opening = next((i for i in range(at, len(found)) if found[i].text == "{"), len(found))
    closing = _match(found, opening)
    names = _bindings(found[opening + 1 : closing])
    rest = [*found[:at], *found[closing + 1 :]]
    cuts = [(found[at].start, found[closing].end)]
    functions: dict[str, Bound] = {}
    for python, name in names.items():
        functions[python], linkage = _function(rest, name)
        cuts += [(token.start, token.end) for token in linkage]
    for start, end in sorted(set(cuts), reverse=True):
        source = source[:start] + source[end:].lstrip(" ")
    return Extension(source.strip("\n") + "\n", functions)


def _tokens(source: str) -> list[_Token]:
    return [
        _Token(match.lastgroup or "", match[0], match.start(), match.end())
        for match in _TOKEN.finditer(source)
        if match.lastgroup not in ("comment", "directive")
    ]


def _match(found: Sequence[_Token], opening: int) -> int:
    """Index of the bracket that closes the one at `opening`."""
    depth = 0
    for at in range(opening, len(found)):
        depth += (found[at].text in "([{") - (found[at].text in ")]}")
        if not depth:
            return at
    raise Unrewritable("CUDA source with unbalanced brackets")


def _bindings(found: Sequence[_Token]) -> dict[str, str]:
    """Name in Python -> name in C++."""
    names: dict[str, str] = {}
    for at, token in enumerate(found):
        if token.text != "def" or [item.text for item in found[at + 1 : at + 2]] != ["("]:
            continue
        python = found[at + 2].text.strip('"')
        place = at + 4 + (found[at + 4].text == "&")
        target = found[place]
        if target.kind != "name" or found[place + 1].text not in (",", ")"):
            raise Unrewritable("binding of something else than a plain function", python)
        names[python] = target.text
    if not names:
        raise Unrewritable("CUDA source binds nothing with PYBIND11_MODULE")
    return names


def _function(found: Sequence[_Token], name: str) -> tuple[Bound, list[_Token]]:
    """A function that is defined in no namespace, and its tokens `static` and `inline`."""
    depth = start = 0
    for at, token in enumerate(found):
        if token.text == name and not depth and found[at + 1].text == "(":
            closing = _match(found, at + 1)
            if closing + 1 < len(found) and found[closing + 1].text == "{":
                return _declared(found[start:at], name, found[at + 2 : closing])
        depth += (token.text in "([{") - (token.text in ")]}")
        if not depth and token.text in (";", "}"):
            start = at + 1
    raise Unrewritable("bound function is not defined outside of namespaces", name)


def _declared(before: Sequence[_Token], name: str, inside: Sequence[_Token]) -> tuple[Bound, list[_Token]]:
    if any(token.text in ("template", "extern") for token in before):
        raise Unrewritable("bound function is a template or extern", name)
    linkage = [token for token in before if token.text in _LINKAGE]
    result = [token for token in before if token.text not in _LINKAGE]
    parameters: list[list[_Token]] = [[]]
    depth, skips = 0, False
    for token in inside:
        depth += (token.text in "([{<") - (token.text in ")]}>")
        if not depth and token.text == ",":
            parameters.append([])
            skips = False
        elif not depth and token.text == "=":
            skips = True
        elif not skips:
            parameters[-1].append(token)
    parameters = [item for item in parameters if item]
    types = [result, *(item[:-1] for item in parameters)]
    foreign = {token.text for item in types for token in item if token.kind == "name"} - _TYPES
    if foreign or any(item[-1].kind != "name" or len(item) < 2 for item in parameters):
        raise Unrewritable("bound function with types of its own", ", ".join(sorted(foreign)) or name)
    texts = [_spelled(item) for item in parameters]
    declaration = f"{_spelled(result)} {name}({', '.join(texts)});"
    return Bound(name, tuple(item[-1].text for item in parameters), declaration), linkage


def _spelled(found: Sequence[_Token]) -> str:
    """Tokens of a type with blanks between names."""
    text = ""
    for token in found:
        apart = text and (text[-1].isalnum() or text[-1] in "_>&*,") and token.kind == "name"
        text += (" " if apart else "") + token.text
    return text

"""The calls of `load_inline` in a candidate, read without executing it.

They let a build begin before a GPU is needed, and show checkers the source inside the strings. Only constants are read:
a call with computed arguments has `complete` false, and is built when the candidate makes it.
"""

from __future__ import annotations

import ast
import textwrap
from collections import Counter
from typing import Any

import attrs

from kernelrl_core.api.sources import parse_source

__all__ = ["InlineCall", "SourceText", "find_inline_calls"]

_FUNCTION = "load_inline"
_ORDER = ("name", "cpp_sources", "cuda_sources", "sycl_sources", "functions", "extra_cflags", "extra_cuda_cflags")
"""Parameters of `load_inline` in their order."""
_FLAGS = ("extra_cflags", "extra_cuda_cflags", "extra_ldflags", "extra_include_paths")
_TELLING = ("cpp_sources", "cuda_sources", "functions")
_IMPORTANT = {"name", *_TELLING, *_FLAGS}
_HARMLESS = {"verbose", "build_directory", "with_cuda", "is_python_module", "keep_intermediates", "use_pch"}
_MAX_DEPTH = 60
_MAX_CALLS = 64
_MAX_CHARACTERS = 1_000_000
"""Limit of all texts that are concatenated from one file, because a few lines can double a text again and again; and
limit of all texts that are found in it."""


@attrs.frozen
class SourceText:
    """One piece of C++ source inside the Python file."""

    text: str
    line: int
    """Line of the Python file (from 1) where the text begins."""


@attrs.frozen
class InlineCall:
    """A call of `torch.utils.cpp_extension.load_inline`."""

    name: str
    """Name of the extension; empty if it is computed."""
    cpp_sources: tuple[SourceText, ...]
    cuda_sources: tuple[SourceText, ...]
    functions: tuple[tuple[str, str], ...] | None
    """Functions to bind, with their documentation; None if the source binds them by itself."""
    cflags: tuple[str, ...]
    device_flags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    line: int = 1
    """Line of the call."""
    complete: bool = True
    """Whether every argument that matters was read. Otherwise the texts are only a part of those in the call."""
    unread: tuple[str, ...] = ()
    """The arguments among sources and functions that were given and not read."""


def find_inline_calls(source: str) -> tuple[InlineCall, ...]:
    """The calls in the order of the source; empty for a source that does not parse."""
    tree = parse_source(source)
    if tree is None:
        return ()
    nodes = list(ast.walk(tree))
    imported = [alias for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names]
    names = {_FUNCTION, *(alias.asname for alias in imported if alias.name == _FUNCTION and alias.asname)}
    constants = _Constants(nodes)
    found = [node for node in nodes if isinstance(node, ast.Call) and _is_load_inline(node.func, names)]
    found.sort(key=lambda node: node.lineno)
    return tuple(_read(node, constants) for node in found[:_MAX_CALLS])


def _is_load_inline(function: ast.expr, names: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in names
    return isinstance(function, ast.Attribute) and function.attr == _FUNCTION


def _read(call: ast.Call, constants: _Constants) -> InlineCall:
    given: dict[str | None, ast.expr] = {
        **dict(zip(_ORDER, call.args, strict=False)),
        **{word.arg: word.value for word in call.keywords},
    }
    opaque = None in given or any(isinstance(value, ast.Starred) for value in call.args)
    complete = not opaque and len(call.args) <= 3 and not given.keys() - _IMPORTANT - _HARMLESS
    read: dict[str, Any] = {}
    for name in _IMPORTANT & given.keys():
        try:
            read[name] = constants.value(given[name])
        except _Computed:
            complete = False
    functions = read.get("functions")
    if not isinstance(functions, dict):
        complete = complete and _is_text(functions)
        functions = None if functions is None else {name: name for name in _texts(functions)}
    # Torch decides about other values when the candidate makes the call.
    complete = complete and all(_is_text(read.get(name)) for name in ("cpp_sources", "cuda_sources", *_FLAGS))
    sources = {name: [SourceText(str(text), text.line) for text in _texts(read.get(name))] for name in _TELLING[:2]}
    try:
        constants.spend(sum(len(piece.text) for pieces in sources.values() for piece in pieces))
    except _Computed:
        complete, sources = False, {key: [] for key in sources}
        read = {name: value for name, value in read.items() if name not in sources}
    extension_name = read.get("name")
    cflags, device_flags, ldflags, include_paths = (tuple(map(str, _texts(read.get(flag)))) for flag in _FLAGS)
    return InlineCall(
        name=str(extension_name) if isinstance(extension_name, str) else "",
        cpp_sources=tuple(sources["cpp_sources"]),
        cuda_sources=tuple(sources["cuda_sources"]),
        functions=None if functions is None else tuple((str(key), str(text)) for key, text in functions.items()),
        cflags=cflags,
        device_flags=device_flags,
        ldflags=ldflags,
        include_paths=include_paths,
        line=call.lineno,
        complete=complete and isinstance(extension_name, str) and "cpp_sources" in read,
        unread=tuple(name for name in _TELLING if name not in read and (name in given or opaque)),
    )


class _Text(str):
    """A text that begins on a line of the file."""

    line: int


def _at(line: int, text: str) -> _Text:
    made = _Text(text)
    made.line = line
    return made


def _is_text(value: Any) -> bool:
    """Whether a value is a text, a list of texts, or None."""
    return value is None or isinstance(value, str) or (isinstance(value, list) and len(_texts(value)) == len(value))


def _texts(value: Any) -> list[_Text]:
    values = value if isinstance(value, list) else [value]
    return [item for item in values if isinstance(item, _Text)]


class _Computed(Exception):
    """A value that cannot be read without executing the source."""


class _Constants:
    """Names of a file that are assigned one constant value, once."""

    def __init__(self, nodes: list[ast.AST]) -> None:
        stored: Counter[str] = Counter()
        values: dict[str, ast.expr] = {}
        for node in nodes:
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                    stored[name] += 1
                case ast.Assign(targets=targets, value=value):
                    values |= {target.id: value for target in targets if isinstance(target, ast.Name)}
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    values[name] = value
        self._values = {name: value for name, value in values.items() if stored[name] == 1}
        self._left = _MAX_CHARACTERS
        self._known: dict[int, Any] = {}

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Value of an expression: text (`_Text`), number, None, list or mapping.

        Raises:
            _Computed: only execution gives the value.
        """
        if depth > _MAX_DEPTH:
            raise _Computed
        if id(node) not in self._known:
            try:
                self._known[id(node)] = self._value(node, depth + 1)
            except _Computed:
                self._known[id(node)] = _Computed
        if self._known[id(node)] is _Computed:
            raise _Computed
        return self._known[id(node)]

    def _value(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=str() as text):
                return _at(node.lineno, text)
            case ast.Constant(value=bool() | int() | float() | None):
                return node.value
            case ast.Name(id=name) if name in self._values:
                return self.value(self._values[name], depth)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element, depth) for element in elements]
            case ast.Dict(keys=keys, values=values) if None not in keys:
                read = [self.value(part, depth) for part in (*keys, *values) if part is not None]
                if all(isinstance(part, str) for part in read):
                    return dict(zip(read, read[len(keys) :], strict=False))
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(self.value(left, depth), self.value(right, depth), node.lineno)
            case ast.JoinedStr(values=parts):
                return _at(node.lineno, "".join([self._formatted(part, depth) for part in parts]))
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments, keywords=[]):
                return self._method(owner, method, arguments, depth)
        raise _Computed

    def _sum(self, first: Any, second: Any, line: int) -> Any:
        if isinstance(first, list) and isinstance(second, list):
            self.spend(len(first) + len(second))
            return first + second
        if isinstance(first, str) and isinstance(second, str):
            self.spend(len(first) + len(second))
            return _at(line, first + second)
        raise _Computed

    def spend(self, characters: int) -> None:
        """Count the characters of a text.

        Raises:
            _Computed: the texts of the file are too long to be read.
        """
        self._left -= characters
        if self._left < 0:
            raise _Computed

    def _formatted(self, part: ast.expr, depth: int) -> str:
        if isinstance(part, ast.FormattedValue):
            if part.format_spec is not None or part.conversion != -1:
                raise _Computed
            part = part.value
        value = self.value(part, depth)
        if not isinstance(value, str | bool | float) and not (isinstance(value, int) and abs(value) < 1 << 64):
            raise _Computed
        self.spend(len(str(value)))
        return str(value)

    def _method(self, owner: ast.expr, method: str, arguments: list[ast.expr], depth: int) -> _Text:
        values = [self.value(argument, depth) for argument in arguments]
        if method == "dedent" and len(values) == 1 and isinstance(values[0], _Text):
            return _at(values[0].line, textwrap.dedent(values[0]))
        text = self.value(owner, depth)
        if isinstance(text, _Text) and all(isinstance(value, str) for value in values):
            match method, values:
                case "strip" | "lstrip" | "rstrip", []:
                    return _at(text.line, getattr(text, method)())
                case "replace", [old, new]:
                    self.spend(len(text) + text.count(old) * len(new))
                    return _at(text.line, text.replace(old, new))
        raise _Computed

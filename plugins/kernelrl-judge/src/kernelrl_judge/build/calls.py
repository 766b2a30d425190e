"""The calls of `load_inline` in a candidate, read without running it.

What is found lets a build begin before a GPU is asked for, and shows checkers the source inside the strings. It is a
reading of constants, not an execution: a call whose arguments are computed is reported with `complete` false, and is
built when the candidate makes it.
"""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import attrs

from kernelrl_core.api.sources import parse_source

__all__ = ["InlineCall", "SourceText", "find_inline_calls"]

_FUNCTION = "load_inline"
_IMPORTANT = {
    "name",
    "cpp_sources",
    "cuda_sources",
    "functions",
    "extra_cflags",
    "extra_cuda_cflags",
    "extra_ldflags",
    "extra_include_paths",
}
_HARMLESS = {"verbose", "build_directory", "with_cuda", "is_python_module", "keep_intermediates", "use_pch"}
_MAX_DEPTH = 60
_MAX_CALLS = 64
_MAX_CHARACTERS = 1_000_000
"""Of all that is put together in one file, and of all that is found in it: a few lines can double a text again and
again."""


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
    """Name of the extension; empty when it is computed."""
    cpp_sources: tuple[SourceText, ...]
    cuda_sources: tuple[SourceText, ...]
    functions: tuple[tuple[str, str], ...] | None
    """Functions to be bound with their documentation; None when the source binds them by itself."""
    cflags: tuple[str, ...]
    device_flags: tuple[str, ...]
    ldflags: tuple[str, ...]
    include_paths: tuple[str, ...]
    line: int
    """Line of the call."""
    target: str
    """Name that the module is assigned to (`ext`, or the attribute's name of `self.ext`); empty for none."""
    complete: bool
    """Whether every argument that matters was read. Otherwise the texts are what could be read."""
    unread: tuple[str, ...] = ()
    """Which of the sources and functions were given and not read."""


def find_inline_calls(source: str) -> tuple[InlineCall, ...]:
    """The calls in the order of the source; nothing for a source that does not parse."""
    tree = parse_source(source)
    if tree is None:
        return ()
    names = _function_names(tree)
    constants = _Constants(tree)
    targets = {
        id(node.value): _target_name(node.targets[0] if isinstance(node, ast.Assign) else node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call)
    }
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _is_load_inline(node.func, names)]
    found.sort(key=lambda node: node.lineno)
    return tuple(_read(node, constants, targets.get(id(node), "")) for node in found[:_MAX_CALLS])


def _function_names(tree: ast.Module) -> set[str]:
    names = {_FUNCTION}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname for alias in node.names if alias.name == _FUNCTION and alias.asname}
    return names


def _is_load_inline(function: ast.expr, names: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in names
    return isinstance(function, ast.Attribute) and function.attr == _FUNCTION


def _target_name(target: ast.expr) -> str:
    if isinstance(target, ast.Name):
        return target.id
    return target.attr if isinstance(target, ast.Attribute) else ""


def _read(call: ast.Call, constants: _Constants, target: str) -> InlineCall:
    # The order of the parameters of `load_inline`.
    order = ("name", "cpp_sources", "cuda_sources", "sycl_sources", "functions", "extra_cflags", "extra_cuda_cflags")
    complete = not any(isinstance(value, ast.Starred) for value in call.args) and len(call.args) <= 3
    given = dict(zip(order, call.args, strict=False))
    for keyword in call.keywords:
        if keyword.arg is None or keyword.arg not in _IMPORTANT | _HARMLESS:
            complete = False
        else:
            given[keyword.arg] = keyword.value
    read: dict[str, Any] = {}
    for name in _IMPORTANT & set(given):
        try:
            read[name] = constants.value(given[name])
        except _Computed:
            complete = False
    named = read.get("name")
    functions = read.get("functions")
    if isinstance(functions, dict):
        bound: tuple[tuple[str, str], ...] | None = tuple(functions.items())
    else:
        bound = tuple((name, name) for name in _flags(functions)) if functions is not None else None
    texts = [read.get(name) for name in _IMPORTANT - {"name", "functions"}]
    if not all(map(_is_text, [*texts, None if isinstance(functions, dict) else functions])):
        # What torch does with other things is seen when the candidate does it.
        complete = False
    cpp_sources = _texts(read.get("cpp_sources"), given.get("cpp_sources"), constants)
    cuda_sources = _texts(read.get("cuda_sources"), given.get("cuda_sources"), constants)
    try:
        constants.spend(sum(len(piece.text) for piece in (*cpp_sources, *cuda_sources)))
    except _Computed:
        complete, cpp_sources, cuda_sources = False, (), ()
        read = {name: value for name, value in read.items() if name not in ("cpp_sources", "cuda_sources")}
    opaque = any(isinstance(value, ast.Starred) for value in call.args) or any(k.arg is None for k in call.keywords)
    telling = ("cpp_sources", "cuda_sources", "functions")
    return InlineCall(
        name=named if isinstance(named, str) else "",
        cpp_sources=cpp_sources,
        cuda_sources=cuda_sources,
        functions=bound,
        cflags=_flags(read.get("extra_cflags")),
        device_flags=_flags(read.get("extra_cuda_cflags")),
        ldflags=_flags(read.get("extra_ldflags")),
        include_paths=_flags(read.get("extra_include_paths")),
        line=call.lineno,
        target=target,
        complete=complete and isinstance(named, str) and "cpp_sources" in read,
        unread=tuple(name for name in telling if name not in read and (name in given or opaque)),
    )


def _is_text(value: Any) -> bool:
    """Whether a value is a text, a list of texts, or not given."""
    return value is None or isinstance(value, str) or (isinstance(value, list) and len(_flags(value)) == len(value))


def _flags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()


def _texts(value: Any, node: ast.expr | None, constants: _Constants) -> tuple[SourceText, ...]:
    if node is None or value is None:
        return ()
    texts = _flags(value)
    lines = constants.lines(node)
    return tuple(
        SourceText(text, lines[index] if index < len(lines) else node.lineno) for index, text in enumerate(texts)
    )


def _is_pair(key: Any, value: Any) -> bool:
    return isinstance(key, str) and isinstance(value, str)


class _Computed(Exception):
    """A value that cannot be read without running the source."""


class _Constants:
    """Names of a file that are assigned one constant value, once."""

    def __init__(self, tree: ast.Module) -> None:
        assigned: dict[str, list[ast.expr | None]] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        for name in ast.walk(target):
                            if isinstance(name, ast.Name):
                                assigned.setdefault(name.id, []).append(value if name is target else None)
                case ast.AnnAssign(target=ast.Name(id=name_), value=value):
                    assigned.setdefault(name_, []).append(value)
                case ast.AugAssign(target=ast.Name(id=name_)) | ast.NamedExpr(target=ast.Name(id=name_)):
                    assigned.setdefault(name_, []).append(None)
                case ast.For(target=target) | ast.comprehension(target=target):
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            assigned.setdefault(name.id, []).append(None)
                case ast.arg(arg=name_):
                    assigned.setdefault(name_, []).append(None)
        self._left = _MAX_CHARACTERS
        self._known: dict[int, Any] = {}
        self._known_lines: dict[int, list[int]] = {}
        self._values = {name: values[0] for name, values in assigned.items() if len(values) == 1 and values[0]}

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Text, number, None, list or mapping that an expression stands for.

        Raises:
            _Computed: it takes more than reading.
        """
        if depth > _MAX_DEPTH:
            raise _Computed
        if id(node) not in self._known:
            try:
                self._known[id(node)] = self._value(node, depth)
            except _Computed:
                self._known[id(node)] = _Computed
        if self._known[id(node)] is _Computed:
            raise _Computed
        return self._known[id(node)]

    def _value(self, node: ast.expr, depth: int) -> Any:
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None):
                return node.value
            case ast.Name(id=name) if name in self._values:
                return self.value(self._values[name], depth + 1)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element, depth + 1) for element in elements]
            case ast.Dict(keys=keys, values=values):
                pairs = [
                    (self.value(key, depth + 1), self.value(value, depth + 1))
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                ]
                if len(pairs) == len(keys) and all(_is_pair(*pair) for pair in pairs):
                    return dict(pairs)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self.value(left, depth + 1), self.value(right, depth + 1)
                if (isinstance(first, str) and isinstance(second, str)) or (
                    isinstance(first, list) and isinstance(second, list)
                ):
                    self.spend(len(first) + len(second))
                    return first + second
            case ast.JoinedStr(values=parts):
                return "".join([self._formatted(part, depth + 1) for part in parts])
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments, keywords=[]):
                return self._method(owner, method, arguments, depth + 1)
        raise _Computed

    def spend(self, characters: int) -> None:
        """Count what is put together.

        Raises:
            _Computed: it is too much to be read.
        """
        self._left -= characters
        if self._left < 0:
            raise _Computed

    def lines(self, node: ast.expr, depth: int = 0) -> list[int]:
        """Line where each text of an expression begins."""
        if id(node) not in self._known_lines:
            self._known_lines[id(node)] = self._lines(node, depth)
        return self._known_lines[id(node)]

    def _lines(self, node: ast.expr, depth: int) -> list[int]:
        if depth <= _MAX_DEPTH:
            if isinstance(node, ast.Name) and node.id in self._values:
                return self.lines(self._values[node.id], depth + 1)
            if isinstance(node, ast.List | ast.Tuple):
                return [line for element in node.elts for line in self.lines(element, depth + 1)[:1]]
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                return self.lines(node.func.value, depth + 1)
        return [node.lineno]

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

    def _method(self, owner: ast.expr, method: str, arguments: list[ast.expr], depth: int) -> Any:
        values = [self.value(argument, depth) for argument in arguments]
        if method == "dedent" and len(values) == 1 and isinstance(values[0], str):
            return textwrap.dedent(values[0])
        text = self.value(owner, depth)
        if isinstance(text, str) and all(isinstance(value, str) for value in values):
            match method, values:
                case "strip" | "lstrip" | "rstrip", []:
                    return getattr(text, method)()
                case "replace", [old, new]:
                    self.spend(len(text) + text.count(old) * len(new))
                    return text.replace(old, new)
        raise _Computed

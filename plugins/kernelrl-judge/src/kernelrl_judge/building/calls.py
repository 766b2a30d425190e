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

from kernelrl_core.reachability import parse_source

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
    calls = [
        _read(node, constants, targets.get(id(node), ""))
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_load_inline(node.func, names)
    ]
    return tuple(sorted(calls, key=lambda call: call.line))


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
    functions = read.get("functions")
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, dict):
        bound: tuple[tuple[str, str], ...] | None = tuple((str(key), str(value)) for key, value in functions.items())
    else:
        bound = tuple((str(name), str(name)) for name in functions) if isinstance(functions, list) else None
    return InlineCall(
        name=str(read.get("name") or ""),
        cpp_sources=_texts(read.get("cpp_sources"), given.get("cpp_sources"), constants),
        cuda_sources=_texts(read.get("cuda_sources"), given.get("cuda_sources"), constants),
        functions=bound,
        cflags=_flags(read.get("extra_cflags")),
        device_flags=_flags(read.get("extra_cuda_cflags")),
        ldflags=_flags(read.get("extra_ldflags")),
        include_paths=_flags(read.get("extra_include_paths")),
        line=call.lineno,
        target=target,
        complete=complete and "name" in read and "cpp_sources" in read,
    )


def _flags(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _texts(value: Any, node: ast.expr | None, constants: _Constants) -> tuple[SourceText, ...]:
    if node is None or value is None:
        return ()
    texts = [value] if isinstance(value, str) else [text for text in value if isinstance(text, str)]
    lines = constants.lines(node)
    return tuple(
        SourceText(text, lines[index] if index < len(lines) else node.lineno) for index, text in enumerate(texts)
    )


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
        self._values = {name: values[0] for name, values in assigned.items() if len(values) == 1 and values[0]}

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Text, number, None, list or mapping that an expression stands for.

        Raises:
            _Computed: it takes more than reading.
        """
        if depth > _MAX_DEPTH:
            raise _Computed
        match node:
            case ast.Constant(value=str() | bool() | int() | float() | None):
                return node.value
            case ast.Name(id=name) if name in self._values:
                return self.value(self._values[name], depth + 1)
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return [self.value(element, depth + 1) for element in elements]
            case ast.Dict(keys=keys, values=values) if all(keys):
                return {
                    self.value(key, depth + 1): self.value(value, depth + 1)
                    for key, value in zip(keys, values, strict=True)
                    if key is not None
                }
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                first, second = self.value(left, depth + 1), self.value(right, depth + 1)
                if isinstance(first, str) and isinstance(second, str):
                    return first + second
                if isinstance(first, list) and isinstance(second, list):
                    return first + second
            case ast.JoinedStr(values=parts):
                return "".join(self._formatted(part, depth + 1) for part in parts)
            case ast.Call(func=ast.Attribute(value=owner, attr=method), args=arguments, keywords=[]):
                return self._method(owner, method, arguments, depth + 1)
        raise _Computed

    def lines(self, node: ast.expr, depth: int = 0) -> list[int]:
        """Line where each text of an expression begins."""
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
            return str(self.value(part.value, depth))
        return str(self.value(part, depth))

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
                    return text.replace(old, new)
        raise _Computed

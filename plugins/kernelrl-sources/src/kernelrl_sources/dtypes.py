"""Dtypes that a task's source names. The source is parsed and never executed."""

from __future__ import annotations

import ast

from kernelrl_sources.syntax import parse

__all__ = ["is_floating", "named_dtypes"]

_INTEGERS = ("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_FLOATS = (*_FLOAT8, "float16", "bfloat16", "float32", "float64", "complex32", "complex64", "complex128")
_DTYPES = frozenset((*_INTEGERS, *_FLOATS))
_ALIASES = {
    "half": "float16",
    "float": "float32",
    "double": "float64",
    "short": "int16",
    "int": "int32",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
"""Other names of dtypes in torch, and methods of tensors that convert to them."""
_METHODS = {**_ALIASES, "bfloat16": "bfloat16", "bool": "bool"}


def named_dtypes(source: str) -> tuple[str, ...]:
    """Dtypes that a source names, such as `torch.float16`, `"float16"` or `.half()`, each once, in their order.

    A tensor may have another dtype: torch has defaults, and a name may come from a computation. An empty result for a
    source that does not parse.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    expressions = [node for node in ast.walk(tree) if isinstance(node, ast.expr)]
    expressions.sort(key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0))
    return tuple(dict.fromkeys(name for node in expressions if (name := _named(node))))


def is_floating(dtype: str) -> bool:
    """Whether a dtype is a floating-point or complex one."""
    return dtype in _FLOATS


def _named(node: ast.expr) -> str:
    """The dtype that an expression names; empty if it names none."""
    match node:
        case ast.Attribute(value=ast.Name(id="torch"), attr=name) if name in _ALIASES:
            return _ALIASES[name]
        case ast.Attribute(value=ast.Name(), attr=name) | ast.Constant(value=str(name)) if name in _DTYPES:
            return name
        case ast.Call(func=ast.Attribute(attr=name), args=[], keywords=[]) if name in _METHODS:
            return _METHODS[name]
    return ""

"""TileLang kernels in a source: which there are, which are used, and which `ModelNew.forward` can reach.

By names alone, on the side of reaching: a kernel counts as launched wherever its name is used, because what is called
is what `tilelang.compile` or a builder makes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelrl_core.api.backends import KernelFact
from kernelrl_core.api.sources import SourceIndex, names_in, parse_source

__all__ = ["find_kernels"]

_DECORATORS = ("tilelang.jit", "tilelang.language.prim_func")


def find_kernels(source: str) -> tuple[KernelFact, ...]:
    """Functions under `tilelang.jit` or `T.prim_func`, in the order of the source; nothing for one that does not parse.

    A `prim_func` inside of a function under `tilelang.jit` is that function's.
    """
    tree = parse_source(source)
    if tree is None:
        return ()
    try:
        kernels = dict(_outermost(tree, _imported(tree)))
    except RecursionError:
        return ()
    if not kernels:
        return ()
    launched = set(names_in(tree))
    reached = {name for node in SourceIndex(tree).reached() for name in names_in(node)}
    return tuple(KernelFact(name, line, name in launched, name in reached) for name, line in kernels.items())


def _imported(tree: ast.Module) -> dict[str, str]:
    """Names that imports of the file bind, with what they stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _outermost(node: ast.AST, imported: dict[str, str]) -> Iterator[tuple[str, int]]:
    for below in ast.iter_child_nodes(node):
        if isinstance(below, ast.FunctionDef) and any(
            _full_name(decorator, imported) in _DECORATORS for decorator in below.decorator_list
        ):
            yield below.name, below.lineno
        else:
            yield from _outermost(below, imported)


def _full_name(decorator: ast.expr, imported: dict[str, str]) -> str:
    head, dot, rest = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).partition(".")
    return imported.get(head, head) + dot + rest

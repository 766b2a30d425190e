"""Kernels marked by a decorator such as `@tilelang.jit`, found in the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from typing import TypeGuard

from kernelrl_core.types.replies import KernelFact
from kernelrl_sources.reachability import SourceIndex, names_in, parse_source
from kernelrl_sources.syntax import children, walk

__all__ = ["decorated_kernels"]


def decorated_kernels(source: str, decorators: Collection[str], *, outermost: bool = False) -> tuple[KernelFact, ...]:
    """Functions with one of the decorators, with or without arguments; empty for a source that does not parse.

    A kernel is `launched` if the source uses its name, and `reached` if such a use is reachable from
    `ModelNew.forward`. Of several functions with one name, the last is listed.

    Args:
        decorators: full names, such as `cutlass.cute.kernel`; imports of the source are resolved.
        outermost: do not list decorated functions inside a kernel.
    """
    tree = parse_source(source)
    if tree is None:
        return ()
    imported = _imported(tree)

    def is_kernel(node: ast.AST) -> TypeGuard[ast.FunctionDef]:
        return isinstance(node, ast.FunctionDef) and any(
            _full_name(decorator, imported) in decorators for decorator in node.decorator_list
        )

    found = _outermost(tree, is_kernel) if outermost else filter(is_kernel, walk(tree))
    kernels = {node.name: node.lineno for node in found}
    if not kernels:
        return ()
    launched = set(names_in(tree))
    reached = {name for node in SourceIndex(tree).reached() for name in names_in(node)}
    return tuple(KernelFact(name, line, name in launched, name in reached) for name, line in kernels.items())


def _outermost(
    tree: ast.Module, is_kernel: Callable[[ast.AST], TypeGuard[ast.FunctionDef]]
) -> Iterator[ast.FunctionDef]:
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if is_kernel(node):
            yield node
        else:
            waiting += reversed(children(node))


def _imported(tree: ast.Module) -> dict[str, str]:
    """Name bound by an import of the file -> its full name."""
    found: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                found[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found


def _full_name(decorator: ast.expr, imported: dict[str, str]) -> str:
    """The decorator's dotted name, without its arguments; empty for any other expression."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    return ".".join((imported.get(node.id, node.id), *attributes)) if isinstance(node, ast.Name) else ""

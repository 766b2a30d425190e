"""CuTe kernels in a source: which there are, which are launched, and which `ModelNew.forward` can reach.

A kernel is a function under `cute.kernel`; one under `cute.jit` runs on the host, or inside of a kernel, and leads to
the kernels that it names. By names alone, on the side of reaching.
"""

from __future__ import annotations

import ast

from kernelrl_core.api.backends import KernelFact
from kernelrl_core.api.sources import SourceIndex, names_in, parse_source

__all__ = ["find_kernels"]

_DECORATOR = "cutlass.cute.kernel"


def find_kernels(source: str) -> tuple[KernelFact, ...]:
    """Functions under `cute.kernel`, in the order of the source; nothing for a source that does not parse."""
    tree = parse_source(source)
    if tree is None:
        return ()
    imported = _imported(tree)
    kernels = {
        node.name: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(_full_name(decorator, imported) == _DECORATOR for decorator in node.decorator_list)
    }
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


def _full_name(decorator: ast.expr, imported: dict[str, str]) -> str:
    head, dot, rest = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator).partition(".")
    return imported.get(head, head) + dot + rest

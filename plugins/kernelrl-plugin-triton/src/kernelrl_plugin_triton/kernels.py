"""Triton kernels in a source: which there are, which are launched, and which `ModelNew.forward` can reach.

By names alone, on the side of reaching: a function counts as called wherever its name is used in code that is
reached, and an attribute leads to everything that is ever assigned to an attribute of that name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from kernelrl_core.values import KernelFact

__all__ = ["find_kernels"]

_ENTRY = "ModelNew"


def find_kernels(source: str) -> tuple[KernelFact, ...]:
    """The functions compiled by `triton.jit`, in the order of the source; nothing for a source that does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    jit_names = set(_jit_names(tree))
    kernels = {
        node.name: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and any(_is_jit(decorator, jit_names) for decorator in node.decorator_list)
    }
    if not kernels:
        return ()
    scopes = _Scopes(tree, set(kernels))
    launched = scopes.launched(None)
    reached = scopes.launched(scopes.reached())
    # A kernel may call another one on the device: what a launched kernel names is launched with it.
    for found in (launched, reached):
        found |= scopes.called_by(found)
    return tuple(KernelFact(name, line, name in launched, name in reached) for name, line in kernels.items())


def _jit_names(tree: ast.Module) -> Iterator[str]:
    """Dotted names that mean `triton.jit` in this file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "triton" or (alias.name.startswith("triton.") and alias.asname is None):
                    yield f"{alias.asname or 'triton'}.jit"
                if alias.name == "triton.runtime" and alias.asname:
                    yield f"{alias.asname}.jit"
        elif isinstance(node, ast.ImportFrom) and node.module in ("triton", "triton.runtime", "triton.runtime.jit"):
            for alias in node.names:
                if alias.name == "jit":
                    yield alias.asname or "jit"


def _is_jit(decorator: ast.expr, names: set[str]) -> bool:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator) in names


class _Scopes:
    """Functions and attributes of a file, with the names each uses."""

    def __init__(self, tree: ast.Module, kernels: set[str]) -> None:
        self._tree = tree
        self._kernels = kernels
        self._bodies: dict[str, list[ast.AST]] = defaultdict(list)
        self._entry: list[ast.AST] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self._bodies[node.name].append(node)
            elif isinstance(node, ast.ClassDef):
                self._bodies[node.name].append(node)
                if node.name == _ENTRY:
                    self._entry += [
                        item
                        for item in node.body
                        if isinstance(item, ast.FunctionDef) and item.name in ("forward", "__call__")
                    ]
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in _targets(target):
                        self._bodies[name].append(node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for name in _targets(node.target):
                    self._bodies[name].append(node.value)

    def reached(self) -> list[ast.AST]:
        """Code that `ModelNew.forward` can come to."""
        found: list[ast.AST] = []
        waiting = list(self._entry)
        seen: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            found.append(node)
            for name in _names(node):
                if name not in self._kernels:
                    waiting += self._bodies.get(name, ())
        return found

    def launched(self, code: list[ast.AST] | None) -> set[str]:
        """Kernels that some code launches; None stands for the whole file."""
        aliases = self._aliases()
        found: set[str] = set()
        for part in [self._tree] if code is None else code:
            for node in ast.walk(part):
                if isinstance(node, ast.Subscript):
                    found |= aliases.get(_last_name(node.value), set())
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run":
                    found |= aliases.get(_last_name(node.func.value), set())
        return found

    def called_by(self, kernels: set[str]) -> set[str]:
        """Kernels whose names the given ones use."""
        found: set[str] = set()
        waiting = list(kernels)
        while waiting:
            for node in self._bodies[waiting.pop()]:
                new = (set(_names(node)) & self._kernels) - found - kernels
                found |= new
                waiting += new
        return found

    def _aliases(self) -> dict[str, set[str]]:
        """Name -> kernels it may stand for, through assignments, to any depth."""
        aliases: dict[str, set[str]] = {name: {name} for name in self._kernels}
        changed = True
        while changed:
            changed = False
            for name, bodies in self._bodies.items():
                if name in self._kernels:
                    continue
                for node in bodies:
                    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                        continue
                    new = {kernel for used in _names(node) for kernel in aliases.get(used, ())}
                    if new - aliases.get(name, set()):
                        aliases[name] = aliases.get(name, set()) | new
                        changed = True
        return aliases


def _targets(target: ast.expr) -> Iterator[str]:
    for node in ast.walk(target):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def _names(node: ast.AST) -> Iterator[str]:
    for below in ast.walk(node):
        if isinstance(below, ast.Name):
            yield below.id
        elif isinstance(below, ast.Attribute):
            yield below.attr


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""

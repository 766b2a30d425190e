"""Which code of a candidate `ModelNew.forward` can come to, by names alone.

On the side of reaching: a function counts as called wherever its name is used in code that is reached, and a name or
attribute leads to everything that is ever assigned to a name or attribute of that spelling. For plugins that look at
sources; nothing is executed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection, Iterator

from kernelrl_core.syntax import parse

__all__ = ["ENTRY", "SourceIndex", "names_in", "parse_source", "targets_of"]

ENTRY = "ModelNew"
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.NamedExpr)


def parse_source(source: str) -> ast.Module | None:
    """The syntax tree, or None for text that defeats the parser."""
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class SourceIndex:
    """Functions, classes and assignments of a file by name, and the entry points of `ModelNew`."""

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.bodies: dict[str, list[ast.AST]] = defaultdict(list)
        """Name -> definitions of it and values assigned to it."""
        self.entries: list[ast.FunctionDef] = []
        """`forward` and `__call__` of `ModelNew`."""
        for node in ast.walk(tree):
            if not isinstance(node, _DEFINING):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bodies[node.name].append(node)
                if isinstance(node, ast.ClassDef) and node.name == ENTRY:
                    self.entries += [
                        item
                        for item in node.body
                        if isinstance(item, ast.FunctionDef) and item.name in ("forward", "__call__")
                    ]
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in targets_of(target):
                        self.bodies[name].append(node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for name in targets_of(node.target):
                    self.bodies[name].append(node.value)

    def reached(self, stop: Collection[str] = ()) -> list[ast.AST]:
        """Definitions and values that `forward` can come to; what is named in `stop` is not entered."""
        found: list[ast.AST] = []
        waiting: list[ast.AST] = list(self.entries)
        seen: set[int] = set()
        entered = set(stop)
        walked: set[int] = set()
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            found.append(node)
            for name in _names_in(node, walked):
                if name not in entered:
                    entered.add(name)
                    waiting += self.bodies.get(name, ())
        return found


def names_in(node: ast.AST) -> Iterator[str]:
    """Every name and attribute that occurs in a piece of code."""
    return _names_in(node, set())


def _names_in(node: ast.AST, walked: set[int]) -> Iterator[str]:
    """The names in those parts of a piece of code that are not among `walked`, which they join."""
    waiting = [node]
    while waiting:
        below = waiting.pop()
        if id(below) in walked:
            continue
        walked.add(id(below))
        if isinstance(below, ast.Name):
            yield below.id
        elif isinstance(below, ast.Attribute):
            yield below.attr
        waiting += ast.iter_child_nodes(below)


def targets_of(target: ast.expr) -> Iterator[str]:
    """Names and attributes that an assignment to `target` gives a value."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from targets_of(item)
    elif isinstance(target, ast.Starred | ast.Subscript):
        yield from targets_of(target.value)

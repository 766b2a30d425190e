"""A candidate's Python, read once: its nodes, definitions by name, and the dotted names of expressions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelrl_core.api.sources import MAX_SOURCE_CHARACTERS, SourceIndex, children, parse_source, walk

__all__ = ["Breach", "HiddenSource", "Reading", "read"]

_MAX_STEPS = 130_000
_MAX_PARTS = 16

Breach = tuple[str, int | None, str]
"""Rule id, line of the candidate, and the observation."""


class HiddenSource(Exception):
    """The source cannot be read: the reason."""


def read(source: str) -> Reading | None:
    """A parsed source; None if it cannot be parsed. The core accepts no such candidate."""
    tree = parse_source(source) if len(source) <= MAX_SOURCE_CHARACTERS else None
    return None if tree is None else Reading(tree)


class Reading:
    """A parsed source for the rules on Python. Code under `if __name__ == "__main__":` is removed.

    A name that cannot be resolved breaks no rule.
    """

    def __init__(self, tree: ast.Module) -> None:
        tree.body = [statement for statement in tree.body if not _is_main_guard(statement)]
        self.nodes: Sequence[ast.AST] = list(walk(tree))
        """All nodes but those of contexts and operators."""
        self.index = SourceIndex(tree, self.nodes)
        self.modules = dict(_imports(self.nodes))
        """Local name of an import -> dotted name of the imported object."""
        self._steps = 0

    def spend(self) -> None:
        """Count a step. The limit is in the same place on every machine, unlike one of time.

        Raises:
            HiddenSource: the limit is reached.
        """
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise HiddenSource("reading it takes too many steps")

    def dotted(self, node: ast.AST, depth: int = 8) -> str:
        """Dotted name of the object of an expression, with imports and aliases resolved; empty when unknown."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute) and len(parts) < _MAX_PARTS:
            self.spend()
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.modules.get(node.id, "")
        if not root:
            values = self.index.bodies.get(node.id, [])
            if not values:
                return ".".join([node.id, *reversed(parts)])
            # `T = torch` and the like.
            if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute) and depth:
                root = self.dotted(values[0], depth - 1)
        return ".".join([root, *reversed(parts)]) if root else ""

    def own_nodes(self, part: ast.AST) -> Iterator[ast.AST]:
        """The nodes of a function, without those of functions and classes inside it."""
        waiting: list[ast.AST] = [part.body] if isinstance(part, ast.Lambda) else list(getattr(part, "body", ()))
        while waiting:
            node = waiting.pop()
            self.spend()
            yield node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                waiting += children(node)


def _is_main_guard(statement: ast.stmt) -> bool:
    test = statement.test if isinstance(statement, ast.If) else None
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    return any(isinstance(side, ast.Name) and side.id == "__name__" for side in sides)


def _imports(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield alias.asname or first, alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"

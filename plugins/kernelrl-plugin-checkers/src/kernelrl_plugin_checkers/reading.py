"""A candidate's Python, read once: its nodes, definitions by name, and the dotted names that expressions stand for."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelrl_core.api.sources import SourceIndex, children, free_names, walk

__all__ = ["Breach", "Reading", "TooMuch"]

_MAX_STEPS = 130_000
_MAX_PARTS = 16

Breach = tuple[str, int | None, str]
"""Rule id, line of the candidate, and what was seen."""


class TooMuch(Exception):
    """Reading the source takes more steps than it is worth."""


class Reading:
    """What the rules on Python look at.

    Names that cannot be resolved are unknown, which rules take in the candidate's favour.
    """

    def __init__(self, tree: ast.Module) -> None:
        self.tree = tree
        self.nodes: Sequence[ast.AST] = list(walk(tree))
        """All nodes but those of contexts and operators."""
        self.index = SourceIndex(tree, self.nodes)
        self.modules = _imports(self.nodes)
        """Local name -> dotted name of what is imported under it."""
        self._constants = {
            name: node.value
            for name, bodies in self.index.bodies.items()
            if len(bodies) == 1
            for node in bodies
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        self._steps = 0
        self._free: frozenset[int] | None = None
        self._own: dict[int, Sequence[ast.AST]] = {}

    def spend(self, steps: int = 1) -> None:
        """Count work. It ends in the same place on every machine, which a clock would not.

        Raises:
            TooMuch: the limit is reached.
        """
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise TooMuch

    def walk(self, node: ast.AST) -> Iterator[ast.AST]:
        """The node and all below it."""
        for below in walk(node):
            self.spend()
            yield below

    def dotted(self, node: ast.AST, depth: int = 8) -> str:
        """Dotted name that an expression stands for, imports and constant `getattr` resolved; empty when unknown."""
        parts: list[str] = []
        while len(parts) < _MAX_PARTS:
            self.spend()
            if isinstance(node, ast.Attribute):
                parts.append(node.attr)
                node = node.value
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr":
                folded = self.folded(node.args[1]) if len(node.args) >= 2 else None
                if folded is None:
                    return ""
                parts.append(folded)
                node = node.args[0]
            else:
                break
        if not isinstance(node, ast.Name):
            return ""
        if node.id in self.modules:
            return ".".join([self.modules[node.id], *reversed(parts)])
        values = self.index.bodies.get(node.id, [])
        if not values:
            return ".".join([node.id, *reversed(parts)]) if node.id == "builtins" or not parts else ""
        # `T = torch` and the like; a local object of another kind stays unknown.
        if len(values) == 1 and isinstance(values[0], ast.Name | ast.Attribute) and depth:
            inner = self.dotted(values[0], depth - 1)
            return ".".join([inner, *reversed(parts)]) if "." in inner or inner in self.modules.values() else ""
        return ""

    def folded(self, node: ast.AST, depth: int = 100) -> str | None:
        """Text of an expression made of constants."""
        self.spend()
        if depth == 0:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._constants.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.folded(node.left, depth - 1), self.folded(node.right, depth - 1)
            return left + right if left is not None and right is not None else None
        if isinstance(node, ast.JoinedStr):
            parts = [self.folded(v.value if isinstance(v, ast.FormattedValue) else v, depth - 1) for v in node.values]
            return "".join(p for p in parts if p is not None) if None not in parts else None
        return None

    def own_nodes(self, part: ast.AST) -> Sequence[ast.AST]:
        """The nodes of a function, without those of functions and classes inside it, which count on their own."""
        if id(part) not in self._own:
            self._own[id(part)] = list(self._find_own(part))
        return self._own[id(part)]

    def _find_own(self, part: ast.AST) -> Iterator[ast.AST]:
        waiting: list[ast.AST] = [part.body] if isinstance(part, ast.Lambda) else []
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting = list(part.body)
        while waiting:
            node = waiting.pop()
            self.spend()
            yield node
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                waiting += children(node)

    @property
    def free(self) -> frozenset[int]:
        """Identities (`id`) of the `ast.Name` that no function around them binds; see `free_names`."""
        if self._free is None:
            self._free = frozenset(free_names(self.tree, self.spend))
        return self._free


def _imports(nodes: Sequence[ast.AST]) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return found

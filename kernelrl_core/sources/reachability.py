"""Which code of a candidate `ModelNew.forward` can come to, by names alone.

On the side of reaching: a function counts as called wherever its name is used in code that is reached, and a name or
attribute leads to everything that is ever assigned to a name or attribute of that spelling. For plugins that look at
sources; nothing is executed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator

from kernelrl_core.sources.syntax import children, parse, walk

__all__ = ["ENTRY", "SourceIndex", "free_names", "names_in", "parse_source", "targets_of"]

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

    def __init__(self, tree: ast.Module, nodes: Iterable[ast.AST] | None = None) -> None:
        """Read a file.

        Args:
            tree: the file.
            nodes: all of its nodes, in the order of `walk`, where they are known.
        """
        self.tree = tree
        self.bodies: dict[str, list[ast.AST]] = defaultdict(list)
        """Name -> definitions of it and values assigned to it."""
        self.entries: list[ast.FunctionDef] = []
        """`forward` and `__call__` of `ModelNew`."""
        for node in walk(tree) if nodes is None else nodes:
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


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BINDING = (*_FUNCTIONS, *_COMPREHENSIONS)
_AROUND = frozenset({"decorator_list", "annotation", "returns"})
"""Fields of functions that belong to what is around them."""


def free_names(function: ast.AST, spend: Callable[[], None] = lambda: None) -> set[int]:
    """Identities (`id`) of the `ast.Name` below a function that it, or one inside it, reads and does not bind.

    What a comprehension or an inner function binds is bound inside it alone. Decorators and annotations are left out.

    Args:
        spend: called for each step.
    """
    found: set[int] = set()
    waiting: list[tuple[ast.AST, frozenset[str]]] = [(function, frozenset())]
    while waiting:
        node, bound = waiting.pop()
        spend()
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load) and node.id not in bound:
                found.add(id(node))
            continue
        below = children(node, _AROUND)
        if not isinstance(node, _BINDING):
            waiting += [(item, bound) for item in below]
            continue
        outside: list[ast.expr] = []
        if isinstance(node, _FUNCTIONS):
            outside = [*node.args.defaults, *(item for item in node.args.kw_defaults if item is not None)]
        elif isinstance(node, _COMPREHENSIONS):
            outside = [node.generators[0].iter]
        inside = bound | set(_bound_by(node, spend))
        waiting += [(item, bound) for item in outside]
        # The arguments and the first generator hold what is outside, too; there it counts as bound.
        waiting += [(item, inside) for item in below]
    return found


def _bound_by(scope: ast.AST, spend: Callable[[], None]) -> Iterator[str]:
    """Names of a function or a comprehension that are its own."""
    waiting = children(scope, _AROUND)
    while waiting:
        node = waiting.pop()
        spend()
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                yield node.id
            continue
        if isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
            continue
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            yield node.name
        elif isinstance(node, _COMPREHENSIONS):
            # Only what `:=` binds is bound around a comprehension as well.
            for below in walk(node):
                spend()
                if isinstance(below, ast.NamedExpr) and isinstance(below.target, ast.Name):
                    yield below.target.id
            continue
        if not isinstance(node, ast.Lambda):
            waiting += children(node, _AROUND)


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
        waiting += children(below)


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

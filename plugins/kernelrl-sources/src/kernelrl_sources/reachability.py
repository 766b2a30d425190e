"""Code of a candidate that is reachable from `ModelNew.forward`, by names, without executing it.

The result is an upper bound: a function counts as called wherever reachable code uses its name, and a name or attribute
refers to every value that is assigned to a name or attribute of that spelling.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from kernelrl_sources.syntax import children, parse, walk

__all__ = ["ENTRY", "SourceIndex", "free_names", "names_in", "parse_source", "targets_of"]

ENTRY = "ModelNew"
"""Class that every candidate defines."""
_DEFINING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign, ast.NamedExpr)


def parse_source(source: str) -> ast.Module | None:
    """The syntax tree; None for text that cannot be parsed."""
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class SourceIndex:
    """Functions, classes and assignments of a file by name, and the entry points of `ModelNew`."""

    def __init__(self, tree: ast.Module, nodes: Iterable[ast.AST] | None = None) -> None:
        """Index a file.

        Args:
            tree: syntax tree of the file.
            nodes: all its nodes in the order of `walk`, if the caller has them.
        """
        self.tree = tree
        self.bodies: dict[str, list[ast.AST]] = defaultdict(list)
        """Name -> its definitions and the values assigned to it."""
        self.entries: list[ast.FunctionDef] = []
        """`forward` and `__call__` of `ModelNew`, or of the classes it inherits them from."""
        for node in walk(tree) if nodes is None else nodes:
            if not isinstance(node, _DEFINING):
                continue
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                self.bodies[node.name].append(node)
            elif isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in targets_of(target):
                        self.bodies[name].append(node.value)
            elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for name in targets_of(node.target):
                    self.bodies[name].append(node.value)
        self.entries += self._entries()

    def _entries(self) -> Iterator[ast.FunctionDef]:
        waiting, seen = [ENTRY], {ENTRY}
        while waiting:
            for node in self.bodies.get(waiting.pop(), ()):
                own: list[ast.FunctionDef] = []
                above: Sequence[ast.AST] = [node]
                if isinstance(node, ast.ClassDef):
                    above = node.bases
                    methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
                    own = [method for method in methods if method.name in ("forward", "__call__")]
                yield from own
                if not own:
                    names = {name for part in above for name in names_in(part)}
                    waiting += names - seen
                    seen |= names

    def reached(self, stop: Collection[str] = ()) -> list[ast.AST]:
        """Definitions and values reachable from `forward`. Names in `stop` are not followed."""
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
"""Fields of a function that are evaluated in the enclosing scope."""


def free_names(function: ast.AST, spend: Callable[[], None] = lambda: None) -> set[int]:
    """Identities (`id`) of the `ast.Name` nodes of free variables: read in the function or in a function inside it, and
    not bound there.

    Bindings of a comprehension or inner function are local to it. Decorators and annotations are ignored.

    Args:
        spend: called for each step; an exception from it limits the work.
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
        # `below` contains the nodes of `outside` again; with `inside` they count as bound.
        waiting += [(item, inside) for item in below]
    return found


def _bound_by(scope: ast.AST, spend: Callable[[], None]) -> Iterator[str]:
    """Names that a function or a comprehension binds."""
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
            # Of a comprehension's bindings, only those of `:=` are visible outside of it.
            for below in walk(node):
                spend()
                if isinstance(below, ast.NamedExpr) and isinstance(below.target, ast.Name):
                    yield below.target.id
            continue
        if not isinstance(node, ast.Lambda):
            waiting += children(node, _AROUND)


def names_in(node: ast.AST) -> Iterator[str]:
    """Every name and attribute in a subtree."""
    return _names_in(node, set())


def _names_in(node: ast.AST, walked: set[int]) -> Iterator[str]:
    """The names in those nodes of a subtree that are not in `walked`; adds the nodes to `walked`."""
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
    """Names and attributes that an assignment to `target` binds."""
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, ast.Attribute):
        yield target.attr
    elif isinstance(target, ast.Tuple | ast.List):
        for item in target.elts:
            yield from targets_of(item)
    elif isinstance(target, ast.Starred | ast.Subscript):
        yield from targets_of(target.value)

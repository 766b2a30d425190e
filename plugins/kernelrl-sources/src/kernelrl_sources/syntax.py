"""Thread-safe parsing of Python, and fast traversal of syntax trees."""

from __future__ import annotations

import ast
import threading
from collections import deque
from collections.abc import Collection, Iterator

__all__ = ["MAX_DEPTH", "MAX_SOURCE_CHARACTERS", "children", "parse", "walk"]

MAX_SOURCE_CHARACTERS = 200_000
"""Longer sources are not parsed."""
MAX_DEPTH = 200
"""Maximum depth of an accepted syntax tree; recursion into a deeper one would exhaust the stack."""

# CPython 3.11 has one depth counter for all threads that build a tree, and fails if two do so concurrently.
_TURN = threading.RLock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a source. Thread-safe; raises like `ast.parse`."""
    with _TURN:
        return ast.parse(source)


_NO_NODES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "type_comment", "kind", "conversion"}
    | {"is_async", "simple", "rest", "kwd_attrs", "tag"}
)
"""Fields that are not traversed: names, contexts and operators."""
_LEAVES = (ast.Name, ast.Constant, ast.Global, ast.Nonlocal, ast.MatchSingleton)
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = dict.fromkeys(_LEAVES, ())
"""Node type -> its fields that can contain nodes."""


def children(node: ast.AST, without: Collection[str] = ()) -> list[ast.AST]:
    """Child nodes, except contexts (`ast.Load`) and operators (`ast.Add`).

    Args:
        without: fields to skip.
    """
    kind = type(node)
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(name for name in kind._fields if name not in _NO_NODES)
    found: list[ast.AST] = []
    for name in _FIELDS[kind]:
        if name in without:
            continue
        value = getattr(node, name, None)
        if type(value) is list:
            found += value if None not in value else [item for item in value if item is not None]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a subtree in the order of `ast.walk`, except contexts and operators."""
    waiting = deque([node])
    while waiting:
        node = waiting.popleft()
        waiting += children(node)
        yield node

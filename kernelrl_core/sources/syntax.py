"""Python's parser, for one thread at a time, and quick ways through its trees."""

from __future__ import annotations

import ast
import threading
from collections import deque
from collections.abc import Collection, Iterator

__all__ = ["MAX_DEPTH", "MAX_SOURCE_CHARACTERS", "children", "parse", "walk"]

MAX_SOURCE_CHARACTERS = 200_000
"""Longer code is not parsed."""
MAX_DEPTH = 200
"""Deepest nesting of a syntax tree that is accepted; walking a deeper one would exhaust the stack."""

# CPython 3.11 keeps one depth for all threads while it makes a tree, and fails where two make theirs at once.
_TURN = threading.RLock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a source, from any thread.

    Raises:
        What `ast.parse` raises.
    """
    with _TURN:
        return ast.parse(source)


_NO_NODES = frozenset(
    {"ctx", "op", "ops", "id", "attr", "arg", "asname", "module", "level", "type_comment", "kind", "conversion"}
    | {"is_async", "simple", "rest", "kwd_attrs", "tag"}
)
"""Fields with nothing to look into: names, and the nodes of contexts and operators."""
_LEAVES = (ast.Name, ast.Constant, ast.Global, ast.Nonlocal, ast.MatchSingleton)
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = dict.fromkeys(_LEAVES, ())
"""Type of nodes -> its fields that can hold nodes."""


def children(node: ast.AST, without: Collection[str] = ()) -> list[ast.AST]:
    """The nodes right below a node, but for contexts (`ast.Load`) and operators (`ast.Add`).

    Args:
        without: fields that are left out.
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
    """What `ast.walk` gives, in the same order, but for contexts and operators."""
    waiting = deque([node])
    while waiting:
        node = waiting.popleft()
        waiting += children(node)
        yield node

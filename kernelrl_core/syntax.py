"""Python's parser, for one thread at a time."""

from __future__ import annotations

import ast
import threading

__all__ = ["parse"]

# CPython 3.11 keeps one depth for all threads while it makes a tree, and fails where two make theirs at once.
_TURN = threading.RLock()


def parse(source: str) -> ast.Module:
    """The syntax tree of a source, from any thread.

    Raises:
        What `ast.parse` raises.
    """
    with _TURN:
        return ast.parse(source)

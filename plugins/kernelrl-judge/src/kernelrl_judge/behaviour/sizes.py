"""The sizes that a reference draws its inputs with, and the same reference with smaller ones."""

from __future__ import annotations

import ast

from kernelrl_core.api.sources import parse_source, walk

__all__ = ["LADDERS", "Ladder", "resized"]

Ladder = tuple[int, bool]
"""The least new size, and whether each further one doubles; otherwise each is larger by a third of the least."""

LADDERS: tuple[Ladder, ...] = ((12, False), (8, True), (8, False), (6, False), (4, True))
"""12, 16, 20, …; 8, 16, 32, …, so that each divides the next; then smaller ones, for inputs of many dimensions."""

_LEAST_SIZE = 9
"""Smaller integers are dimensions, kernel sizes, strides or numbers of groups."""
_INPUTS = ("get_inputs", "get_init_inputs")


def resized(source: str, ladder: Ladder) -> str | None:
    """The reference with other sizes; None if it writes none, or does not parse.

    Sizes are the integers from 9 at module level and in the functions that make inputs. Each different one gets
    another value, in ascending order, wherever it occurs.
    """
    tree = parse_source(source)
    if tree is None:
        return None
    makers = [
        statement
        for statement in tree.body
        if not isinstance(statement, ast.ClassDef | ast.FunctionDef)
        or (isinstance(statement, ast.FunctionDef) and statement.name in _INPUTS)
    ]
    written = sorted({size for maker in makers for node in walk(maker) if (size := _size(node)) is not None})
    if not written:
        return None
    least, doubles = ladder
    values = [least << position if doubles else least + least // 3 * position for position in range(len(written))]
    replaced = dict(zip(written, values, strict=True))
    for node in walk(tree):
        size = _size(node)
        if isinstance(node, ast.Constant) and size in replaced:
            node.value = replaced[size]
    return ast.unparse(tree)


def _size(node: ast.AST) -> int | None:
    is_size = isinstance(node, ast.Constant) and type(node.value) is int and node.value >= _LEAST_SIZE
    return int(node.value) if is_size else None  # type: ignore[attr-defined]

"""The result of rewriting a row, and the reason why it is impossible."""

from __future__ import annotations

import ast

import attrs

from kernelrl_core.api.sources import parse

__all__ = ["Pair", "Unrewritable", "parse_part"]


@attrs.frozen
class Pair:
    """A reference and a kernel."""

    reference: str
    """Source with `Model`, `get_inputs` and `get_init_inputs`."""
    kernel: str
    """Source of a file that defines `ModelNew`."""
    fixed_sizes: bool = False
    """Whether the kernel asserts the shapes of its inputs, because its sizes cannot be read from them."""


class Unrewritable(Exception):
    """A row that cannot be rewritten.

    Args:
        reason: in a few words, without values, so that equal reasons can be counted.
        detail: values, such as a name.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def parse_part(source: str, part: str) -> ast.Module:
    """The syntax tree of a part of a row.

    Raises:
        Unrewritable: it is not Python.
    """
    try:
        return parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise Unrewritable(f"{part} is not Python", str(error)[:200]) from error

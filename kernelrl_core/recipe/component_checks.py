"""Contradictions in a recipe, and those that a component finds in its own options."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from kernelrl_core.plugins.use import Use

__all__ = ["Contradiction", "own_problems"]


@attrs.frozen
class Contradiction:
    """Values that cannot stand together."""

    path: tuple[str, ...]
    """The value to change."""
    message: str
    hint: str = ""
    missing: bool = False
    """Something must be installed rather than changed."""


def own_problems(path: tuple[str, ...], use: Use) -> Iterator[Contradiction]:
    """What a component's options say against themselves."""
    try:
        found = [str(problem) for problem in use.options.problems()]
    except Exception as error:  # plugin code
        found = [f"component {use.use!r} cannot check its options: {type(error).__name__}: {error}"]
    yield from (Contradiction(path, message) for message in found)

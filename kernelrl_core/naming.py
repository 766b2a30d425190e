"""The nearest right name for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest", "suggestion"]


def nearest(word: str, known: Iterable[str]) -> str:
    """The name in `known` that `word` is most likely meant to be, or empty text."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return close[0] if close else ""


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint for a message: the nearest name, or all names where none is near."""
    names = sorted(known)
    close = nearest(word, names)
    return f"did you mean {close!r}?" if close else f"known: {', '.join(names) or 'none'}"

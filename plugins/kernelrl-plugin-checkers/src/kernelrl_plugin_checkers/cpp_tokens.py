"""C++, CUDA and HIP as tokens. Never refuses a text: what is never closed ends with the line or the text.

The judge's reading of sources raises where it does not understand, for a source must not be taken apart wrongly.
Evidence is sought in any text.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Token", "tokens"]


class Token(NamedTuple):
    """A piece of a text; all of them together are the text, its continued lines joined outside comments and strings."""

    kind: str
    """`space`, `comment`, `directive`, `string`, `character`, `name`, `number` or `mark`."""
    text: str
    start: int
    """Offset of its first character."""


_TOKEN = re.compile(
    r"""
      (?P<directive>^[^\S\n]*\#(?:[^\n\\/]|\\\r?\n|\\|/(?![*/])|/\*[\s\S]*?(?:\*/|\Z)|//[^\n]*+)*+)
    | (?P<space>(?:[^\S\n]*\n)+|[^\S\n]+)
    | (?P<comment>//[^\n\\]*+(?:\\[\s\S][^\n\\]*+)*+|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<string>(?:u8|[uUL])?(?:R"(?P<fence>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=fence)"|\Z)
                             |"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+"?))
    | (?P<number>\.?\d(?:[eEpP][+-]|'?\w|\.)*+)
    | (?P<character>(?:u8|[uUL])?'[^'\\\n]*+(?:\\[\s\S][^'\\\n]*+)*+'?)
    | (?P<name>[A-Za-z_$][\w$]*+)
    | (?P<mark>::|->|<<<|==|!=|\+\+|--|\+=|-=|&&|\|\||[\s\S])
    """,
    re.VERBOSE | re.MULTILINE,
)
_CONTINUED = re.compile(
    r"""
      \\[^\S\n]*\n
    | (?P<kept>//[^\n\\]*+(?:\\[\s\S][^\n\\]*+)*+|/\*[\s\S]*?(?:\*/|\Z)
              |(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=fence)"|\Z)
              |"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+"?|'(?:[^'\\\n]|\\[^\n])'|\\[^\s])
    """,
    re.VERBOSE,
)


def tokens(text: str) -> Iterator[Token]:
    """The tokens of a text, in order and without gaps. A name may be split by the end of a line that continues."""
    text, shifts = _joined(text) if "\\" in text else (text, [])
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        start = match.start()
        if shifts:
            start += shifts[bisect.bisect_right(shifts, (start, len(match.string) * 2)) - 1][1]
        yield Token("string" if kind == "fence" else kind, match.group(), start)


def _joined(text: str) -> tuple[str, list[tuple[int, int]]]:
    """The text with its continued lines joined, and from where on its characters stood how much further behind."""
    parts: list[str] = []
    shifts, end, length, shift = [(0, 0)], 0, 0, 0
    for match in _CONTINUED.finditer(text):
        if match["kept"] is None:
            parts.append(text[end : match.start()])
            length += len(parts[-1])
            end = match.end()
            shift += end - match.start()
            shifts.append((length, shift))
    return "".join((*parts, text[end:])), shifts

"""C++, CUDA and HIP as tokens. Never refuses a text: what is never closed ends with the line or the text.

The judge's reading of sources raises where it does not understand, for a source must not be taken apart wrongly, and
has the compiler read what it has read. Evidence is sought in any text. Where both begin and end comments and literals
is the same.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Token", "text_at", "tokens", "without_comments"]


class Token(NamedTuple):
    """A piece of a text; all of them together are the text, its continued lines joined outside of raw strings."""

    kind: str
    """`space`, `comment`, `directive`, `string`, `character`, `name`, `number` or `mark`."""
    text: str
    start: int
    """Offset of its first character."""


_LETTERS = r"[\w$\x80-\U0010ffff]*+"
_MORE = rf"{_LETTERS}(?:\\[uU]{_LETTERS})*+"
_START = r"(?:[A-Za-z_$\x80-\U0010ffff]|\\[uU])"
_INSIDE = r"(?:[\w$\x80-\U0010ffff]|\\[uU])"
"""Of names. All beyond ASCII counts, and universal character names: what compilers refuse may be read anyhow."""
_SUFFIX = rf"(?:{_START}{_MORE})?"
"""Of a literal that users define: `"text"R"x("` is a literal with the suffix R, and no raw string."""
_NO_LITERAL = r"(?!(?:u8|[uUL])?(?:R\"[^()\\\ \t\f\v\n]{0,16}\(|[\"']))"
_PIECES = rf"""
      (?P<name>(?:[A-KM-QSTV-Za-tv-z_$\x80-\U0010ffff]|{_NO_LITERAL}[uULR]|\\[uU]){_MORE})
    | (?P<comment>//[^\n]*+|/\*[\s\S]*?(?:\*/|\Z))
    | (?P<raw>(?:u8|[uUL])?R"[^()\\\ \t\f\v\n]{{0,16}}\()
    | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.?)*+(?:"{_SUFFIX})?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?{_INSIDE}|\.)*+)
    | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.?)*+(?:'{_SUFFIX})?)
"""
_TOKEN = re.compile(
    rf"(?P<space>[\ \t\f\v\0\r\n]+)|[;,(){{}}\[\]]|{_PIECES}|(?P<mark>::|->|<<<|==|!=|\+\+|--|\+=|-=|&&|\|\||[\s\S])",
    re.VERBOSE | re.ASCII,
)
_BLANK = r"(?:[\ \t\f\v\0]|/\*[\s\S]*?\*/)*+"
_BEGINS = re.compile(r"#(?!#)|%:(?!%:)")
_INCLUDE = re.compile(rf"(?:\#|%:){_BLANK}(?:include(?:_next)?|import|embed)\b")
_IN_INCLUDE = re.compile(r'(?P<end>\n)|<[^>\n]*+>|"[^"\n]*+"|//[^\n]*+|/\*[\s\S]*?(?:\*/|\Z)')
_IN_DIRECTIVE = re.compile(
    rf"""
      (?P<end>\n)
    | (?:u8|[uUL])?R"(?P<fence>[^()\\\ \t\f\v\n]{{0,16}})\([^\n]*?(?:\)(?P=fence)"|$)
    | {_PIECES}
    """,
    re.VERBOSE | re.ASCII | re.MULTILINE,
)
"""Raw strings end with the line there; so does the directive, but for a comment that does not."""
_RAW = re.compile(r'"(?P<fence>[^()\\ \t\f\v\n]{0,16})\([\s\S]*?(?:\)(?P=fence)"|\Z)')
_AFTER_RAW = re.compile(_SUFFIX, re.ASCII)
_BLANKS = frozenset({"space", "comment"})
_CONTINUED = re.compile(r"\\[ \t\f\v\0]*\r?\n")


def tokens(text: str, *, blanks: bool = True) -> Iterator[Token]:
    """The tokens of a text, in order and without gaps. A name may be split by the end of a line that continues.

    Args:
        blanks: whether blanks and comments are given, too.
    """
    # Compilers end lines at a carriage return as well.
    text = re.sub(r"\r(?!\n)", "\n", text)
    lines = _Lines(text)
    joined, offset = lines.joined, lines.offset
    place, fresh = 0, True
    while place < len(joined):
        # Up to the next directive or raw string, which begin as something else does.
        for match in _TOKEN.finditer(joined, place):
            kind, piece = match.lastgroup or "mark", match[0]
            if kind in _BLANKS:
                fresh = fresh or (kind == "space" and "\n" in piece)
                if blanks:
                    yield Token(kind, piece, offset(place))
            elif kind == "raw" or (fresh and piece in "#%" and _BEGINS.match(joined, place)):
                kind, piece, end = _raw(text, lines, place, piece) if kind == "raw" else _directive(joined, place)
                yield Token(kind, piece, offset(place))
                place, fresh = end, False
                break
            else:
                fresh = False
                yield Token(kind, piece, offset(place))
            place += len(piece)


def _directive(joined: str, place: int) -> tuple[str, str, int]:
    """Kind and text of the directive at a place, and where it ends."""
    pieces = _IN_INCLUDE if _INCLUDE.match(joined, place) else _IN_DIRECTIVE
    ends = (match.start() for match in pieces.finditer(joined, place) if match["end"])
    end = next(ends, len(joined))
    return "directive", joined[place:end], end


def _raw(text: str, lines: _Lines, place: int, begin: str) -> tuple[str, str, int]:
    """Kind and text of what begins as a raw string at a place, and where it ends. Lines do not continue inside."""
    joined = lines.joined
    quote = place + begin.index('"')
    raw = _RAW.match(text, lines.offset(quote))
    if raw is None:
        return "name", joined[place:quote], quote
    suffix = _AFTER_RAW.match(joined, lines.place(raw.end()))
    assert suffix is not None  # it may be empty
    return "string", joined[place:quote] + raw.group() + suffix.group(), suffix.end()


def without_comments(directive: str) -> str:
    """A directive with blanks instead of its comments; what else it has keeps its place."""
    return _IN_DIRECTIVE.sub(lambda match: " " * len(match[0]) if match["comment"] else match[0], directive)


def text_at(found: Sequence[Token], at: int) -> str:
    """The text of a token; empty before the first and behind the last."""
    return found[at].text if 0 <= at < len(found) else ""


class _Lines:
    """A text with its continued lines joined, and where each character stood."""

    def __init__(self, text: str) -> None:
        parts: list[str] = []
        self._starts: list[int] = []
        self._places: list[int] = []
        self._removed = [0]
        end = 0
        for match in _CONTINUED.finditer(text) if "\\" in text else ():
            parts.append(text[end : match.start()])
            self._starts.append(match.start())
            self._places.append(match.start() - self._removed[-1])
            end = match.end()
            self._removed.append(self._removed[-1] + end - match.start())
        self.joined = "".join((*parts, text[end:]))

    def offset(self, place: int) -> int:
        """Where a character of the joined text stood."""
        return place + self._removed[bisect.bisect_right(self._places, place)] if self._places else place

    def place(self, offset: int) -> int:
        """Where what stood at an offset, or behind the end of the line there, is in the joined text."""
        return offset - self._removed[bisect.bisect_left(self._starts, offset)]

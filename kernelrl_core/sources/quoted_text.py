"""Comments and strings in the code blocks of a text: tags there are code, not tags of the text."""

from __future__ import annotations

import re
from bisect import bisect_right

from kernelrl_core.sources.chat_formats import END_OF_TURN

__all__ = ["QuotedText"]

_MAX_READ_CHARACTERS = 4_000_000
"""Characters of code blocks that are read in total: limits the time spent on adversarial text."""
_MAX_INDENT = 64
"""Maximum indentation of a fence, in characters."""

_OPENING = re.compile(r"((?<!`)`{3,}+|(?<!~)~{3,}+)[ \t]{0,9}+([^\s`~{]{0,99}+)[^\n`]{0,99}+\n|<KERNEL>", re.IGNORECASE)
_FENCE_LINE = rf"^[ \t]{{0,{_MAX_INDENT}}}(?:`{{3,}}|~{{3,}})[ \t]*(?=\r?$|</KERNEL>|{END_OF_TURN})"
_FENCE = re.compile(r"^[ \t]*(?:`{3}|~{3})", re.MULTILINE)
_DOUBLE = r"\"(?:[^\"\\\n]|\\.)*+"
_SINGLE = r"(?<!\w)[rbuf]{0,2}'(?:[^'\\\n]|\\.)*+"
_LEXEME = re.compile(
    rf"(?P<fence>{_FENCE_LINE})"
    r"|(?P<tag></KERNEL>)"
    r"|(?P<comment>(?:\#|//)[^\n]*)"
    r"|(?P<long>\"\"\"|'''|/\*)"
    rf"|(?P<string>{_DOUBLE}\"|{_SINGLE}')"
    # A string without an end is read up to the end of its line, which bounds the time of the search.
    rf"|(?P<unfinished>{_DOUBLE}|{_SINGLE})",
    re.MULTILINE | re.IGNORECASE | re.DOTALL,
)
_LONG_END = {'"""': '"""', "'''": "'''", "/*": "*/"}

Span = tuple[int, int]


class QuotedText:
    """Finds out whether positions of a text are within a comment or string of a code block.

    A code block is a closed fence or closed `<KERNEL>` tags. Strings and comments are those of Python and C++; the
    block may be in any language, and need not be valid.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._budget = _MAX_READ_CHARACTERS
        self._absent: set[str] = set()
        """Ends of long strings and comments that do not occur in the rest of the text."""
        self._start = self._next = 0
        self._spans: list[Span] = []

    def contains(self, position: int, start: int) -> bool:
        """Whether a position is within a comment or string of a code block that begins at `start` or later.

        Args:
            start: never smaller than in an earlier call.
        """
        if start != self._start:
            self._start = self._next = start
            self._spans = []
        while self._next <= position and self._budget > 0:
            opening = _OPENING.search(self._text, self._next, position)
            if opening is None:
                break
            self._next = opening.end()
            if self._opens(opening):
                self._read_block(opening)
        index = bisect_right(self._spans, (position, len(self._text)))
        return index > 0 and position < self._spans[index - 1][1]

    def _opens(self, opening: re.Match[str]) -> bool:
        """Whether a fence opens a block: it starts its line, follows `<KERNEL>`, or has a language tag."""
        if opening[1] is None or opening[2]:
            return True
        earliest = max(self._start, opening.start() - _MAX_INDENT)
        line_start = max(earliest, self._text.rfind("\n", earliest, opening.start()) + 1)
        before = self._text[line_start : opening.start()].strip(" \t")
        return not before or before.upper().endswith("<KERNEL>")

    def _read_block(self, opening: re.Match[str]) -> None:
        """Add the comments and strings of a block and continue after it; nothing if the block is not closed."""
        spans: list[Span] = []
        position = opening.end()
        while (found := _LEXEME.search(self._text, position)) is not None:
            position = found.end()
            if found.lastgroup == "long":
                span = self._long(found)
                if span is not None:
                    position = span[1]
                    spans.append(self._before_fence(span))
            elif found.lastgroup in ("comment", "string"):
                spans.append(found.span())
            elif self._closes(found, opening):
                self._spans += spans
                self._next = position
                break
        self._budget -= (len(self._text) if found is None else position) - opening.end()

    def _closes(self, closing: re.Match[str], opening: re.Match[str]) -> bool:
        if opening[1] is None:
            return closing.lastgroup == "tag"
        return closing.lastgroup == "fence" and closing[0].lstrip(" \t").startswith(opening[1])

    def _long(self, opening: re.Match[str]) -> Span | None:
        """Span of a string or comment of several lines; None if it has no end."""
        end = _LONG_END[opening[0]]
        position = -1 if end in self._absent else self._text.find(end, opening.end())
        if position < 0:
            self._absent.add(end)
            return None
        return opening.start(), position + len(end)

    def _before_fence(self, span: Span) -> Span:
        """The part of a long string before the first fence in it.

        An unfinished string of one block would otherwise hide the text up to a string of another block.
        """
        fence = _FENCE.search(self._text, *span)
        return span if fence is None else (span[0], fence.start())

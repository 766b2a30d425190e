"""The C++, CUDA and HIP inside a candidate, and where each of its characters stands in the candidate's file."""

from __future__ import annotations

import ast
import bisect
import re
from collections.abc import Iterator, Sequence

import attrs

from kernelrl_core.api.checkers import SourceFacts

__all__ = ["Embedded", "embedded_texts"]

_IS_CPP = re.compile(r"#\s*include|__global__|\b(?:torch|at|std)::|\bextern\s*\"C\"|\bTORCH_LIBRARY|[;{}]\s*\n")
_MIN_CHARACTERS = 12
_MAX_LINE = 200
_MAX_SHOWN = 120
_MOST_SEARCHES = 100


@attrs.frozen
class Embedded:
    """A text of C++ within the candidate."""

    text: str
    first_line: int
    """Line of the candidate (from 1) where the literal begins."""
    last_line: int
    """Line where it ends."""
    _lines: Sequence[str]
    """Lines of the candidate."""
    is_built: bool = attrs.field(default=True, kw_only=True)
    """Whether it may be built as it stands here; a template is not."""
    _ends: list[int] = attrs.field(init=False)
    _known: dict[int, int] = attrs.field(factory=dict, init=False)
    _places: dict[str, int] = attrs.field(init=False)
    """First line of the literal that is, but for the blanks around it, a text."""
    _searches: list[int] = attrs.field(factory=list, init=False)

    @_ends.default
    def _find_ends(self) -> list[int]:
        return [match.start() for match in re.finditer("\n", self.text)]

    @_places.default
    def _find_places(self) -> dict[str, int]:
        last = min(self.last_line, len(self._lines))
        return {self._lines[line - 1].strip(): line for line in range(last, self.first_line - 1, -1)}

    def line_of(self, offset: int) -> int:
        """Line of the candidate for an offset of the text; the first line of the literal where that cannot be told."""
        below = bisect.bisect_left(self._ends, offset)
        if below not in self._known:
            self._known[below] = self._find(below)
        return self._known[below]

    def excerpt(self, offset: int) -> str:
        """The text's line at an offset, where the candidate's line does not show it at its beginning."""
        wanted = self._line(bisect.bisect_left(self._ends, offset))
        line = self.line_of(offset)
        return "" if wanted in self._lines[line - 1].strip()[:_MAX_SHOWN] else wanted[:_MAX_SHOWN]

    def _line(self, below: int) -> str:
        start = self._ends[below - 1] + 1 if below else 0
        end = self._ends[below] if below < len(self._ends) else len(self.text)
        return self.text[start : min(end, start + _MAX_LINE)].strip()

    def _find(self, below: int) -> int:
        """Line of the candidate for a line of the text, which is counted from 0."""
        wanted = self._line(below)
        straight = self.first_line + below
        if straight <= self.last_line and wanted in self._lines[straight - 1]:
            return straight
        # Escapes and joined literals shift the lines.
        if wanted and wanted in self._places:
            return self._places[wanted]
        if len(self._searches) == _MOST_SEARCHES:
            return self.first_line
        self._searches.append(below)
        for line in range(self.first_line, min(self.last_line, len(self._lines)) + 1):
            if wanted and wanted in self._lines[line - 1]:
                return line
        return self.first_line


def embedded_texts(nodes: Sequence[ast.AST], facts: SourceFacts, lines: Sequence[str]) -> list[Embedded]:
    """Every text of a file that looks like C++, and what the backend found beside these.

    Args:
        nodes: all nodes of the file.
        facts: sources that the backend found.
        lines: lines of the file.
    """
    known = facts.embedded
    found = [
        # Where the backend could not read what is built, that is looked at once it has been built.
        Embedded(text, first, last, lines, is_built=not facts.unread or any(text in piece.source for piece in known))
        for text, first, last in _literals(nodes)
        if _IS_CPP.search(text)
    ]
    texts = {piece.text for piece in found}
    found += [
        Embedded(piece.source, min(piece.line, len(lines)), len(lines), lines)
        for piece in known
        if piece.language != "triton" and piece.source not in texts and not _is_part(piece.source, texts)
    ]
    return found


def _is_part(text: str, texts: set[str]) -> bool:
    return any(text in other for other in texts)


def _literals(nodes: Sequence[ast.AST]) -> Iterator[tuple[str, int, int]]:
    inside: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            parts = [
                part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else "0"
                for part in node.values
            ]
            inside.update(id(part) for part in node.values)
            text = "".join(parts)
        elif isinstance(node, ast.Expr):
            # A docstring is no source.
            inside.add(id(node.value))
            continue
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        if len(text) >= _MIN_CHARACTERS:
            yield text, node.lineno, node.end_lineno or node.lineno

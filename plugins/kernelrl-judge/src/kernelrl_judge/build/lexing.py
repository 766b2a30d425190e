"""C++ and CUDA sources as tokens and as top-level items. No compiler: just enough to take a file apart and put it
together again, and to know when it cannot."""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["Item", "Token", "Unreadable", "as_read", "items", "text_of", "tokens", "unbalanced"]


class Unreadable(Exception):
    """The source is not what this reading understands; the text is why."""


@attrs.frozen
class Token:
    """A piece of a source; all of them together are the source, its continued lines joined outside of raw strings."""

    kind: str
    """`space`, `comment`, `directive`, `string`, `character`, `name`, `number` or `mark`."""
    text: str
    line: int
    """Line of its first character, from 1."""

    @property
    def blank(self) -> bool:
        return self.kind in ("space", "comment")


@attrs.frozen
class Item:
    """A top-level piece of a source."""

    kind: str
    """`directive`, `function`, `record`, `declaration`, or `scope` (a namespace or a linkage block)."""
    tokens: tuple[Token, ...]
    """Everything, with the blanks before it; of a scope, what stands before its brace."""
    children: tuple[Item, ...] = ()
    """Items of a scope."""
    body: int = -1
    """Of a function: index of the token that opens its body."""

    @property
    def line(self) -> int:
        return next((token.line for token in self.tokens if not token.blank), 1)

    @property
    def head(self) -> tuple[Token, ...]:
        """What stands before the body of a function; of others everything."""
        return self.tokens[: self.body] if self.kind == "function" else self.tokens

    @property
    def words(self) -> list[str]:
        """Texts of the head."""
        return [token.text for token in self.head if not token.blank]

    @property
    def text(self) -> str:
        """Everything, with what a scope has inside."""
        inside = "".join(child.text for child in self.children)
        return text_of(self.tokens) + (f"{{{inside}\n}}" if self.kind == "scope" else "")

    def names(self) -> set[str]:
        """Every name in it."""
        found = {token.text for token in self.tokens if token.kind == "name"}
        for token in self.tokens:
            if token.kind == "directive":
                found |= set(re.findall(r"[A-Za-z_]\w*", token.text))
        return found.union(*(child.names() for child in self.children))


_START = r"(?:[A-Za-z_$\x80-\U0010ffff]|\\[uU])"
_INSIDE = r"(?:[\w$\x80-\U0010ffff]|\\[uU])"
"""Of names. All beyond ASCII counts, and universal character names: what compilers refuse may be read anyhow."""
_SUFFIX = rf"(?:{_START}{_INSIDE}*+)?"
"""Of a literal that users define: `"text"R"x("` is a literal with the suffix R, and no raw string."""
_PIECES = rf"""
      (?P<comment>//[^\n]*+|/\*[\s\S]*?\*/)
    | (?P<unclosed>/\*)
    | (?P<raw>(?:u8|[uUL])?R"[^()\\\ \t\f\v\n]{{0,16}}\()
    | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\.?)*+(?:"{_SUFFIX})?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?{_INSIDE}|\.)*+)
    | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\.?)*+(?:'{_SUFFIX})?)
    | (?P<name>{_START}{_INSIDE}*+)
"""
_TOKEN = re.compile(
    rf"(?P<space>[\ \t\f\v\0\r\n]+)|{_PIECES}|(?P<mark>::|->|&&|\|\||[\s\S])",
    re.VERBOSE | re.ASCII,
)
_BLANK = r"(?:[\ \t\f\v\0]|/\*[\s\S]*?\*/)*+"
_BEGINS = re.compile(r"#(?!#)|%:(?!%:)")
_INCLUDE = re.compile(rf"(?:\#|%:){_BLANK}(?:include(?:_next)?|import|embed)\b")
_IN_INCLUDE = re.compile(r'(?P<end>\n)|<[^>\n]*+>|"[^"\n]*+"|(?P<comment>//[^\n]*+|/\*[\s\S]*?\*/)|(?P<unclosed>/\*)')
_IN_DIRECTIVE = re.compile(
    rf"""
      (?P<end>\n)
    | (?:u8|[uUL])?R"(?P<fence>[^()\\\ \t\f\v\n]{{0,16}})\([^\n]*?(?:\)(?P=fence)"|$)
    | {_PIECES}
    """,
    re.VERBOSE | re.ASCII | re.MULTILINE,
)
"""Raw strings end with the line there; so does the directive, but for a comment that does not."""
_RAW = re.compile(r'"(?P<fence>[^()\\ \t\f\v\n]{0,16})\([\s\S]*?\)(?P=fence)"')
_AFTER_RAW = re.compile(_SUFFIX, re.ASCII)
_CONTINUED = re.compile(r"\\[ \t\f\v\0]*\r?\n")
_NO_NEWLINE = re.compile(r"[^\n]")
_BLANKS = " \t\f\v\0"
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_RECORDS = {"struct", "class", "union", "enum"}


def tokens(source: str) -> list[Token]:
    """The tokens of a source.

    Raises:
        Unreadable: a comment or raw string that nobody closes.
    """
    # Compilers end lines at a carriage return as well.
    source = re.sub(r"\r\n?", "\n", source)
    lines = _Lines(source)
    joined = lines.joined
    found: list[Token] = []
    place, seen, line, told, fresh = 0, 0, 1, 1, True
    while place < len(joined):
        offset = lines.offset(place)
        line += source.count("\n", seen, offset)
        seen = offset
        if fresh and _BEGINS.match(joined, place):
            kind, end = "directive", _directive_end(joined, place, line)
        else:
            match = _TOKEN.match(joined, place)
            assert match is not None  # a mark is any character
            kind, end = match.lastgroup or "mark", match.end()
        if kind == "unclosed":
            raise Unreadable(f"line {line}: a comment that is never closed")
        text = joined[place:end]
        if kind == "raw":
            # Lines do not continue inside.
            quote = place + text.index('"')
            raw = _RAW.match(source, lines.offset(quote))
            if raw is None:
                raise Unreadable(f"line {line}: a raw string that is never closed")
            suffix = _AFTER_RAW.match(joined, lines.place(raw.end()))
            assert suffix is not None  # it may be empty
            kind, text, end = "string", text[: quote - place] + raw.group() + suffix.group(), suffix.end()
        if kind == "space" and "\n" in text:
            # Of lines that continue there is one; those behind it keep their numbers.
            text = "\n" * (line - told) + text
        told += text.count("\n")
        found.append(Token(kind, text, line))
        if kind not in ("space", "comment"):
            fresh = False
        elif kind == "space" and "\n" in text:
            fresh = True
        place = end
    line += source.count("\n", seen)
    if line > told:
        found.append(Token("space", "\n" * (line - told), told))
    return found


def _directive_end(text: str, place: int, line: int) -> int:
    pieces = _IN_INCLUDE if _INCLUDE.match(text, place) else _IN_DIRECTIVE
    for match in pieces.finditer(text, place):
        # What is never closed is refused at once: to search its end again from each further place takes forever.
        if match["unclosed"]:
            raise Unreadable(f"line {line}: a comment that is never closed")
        if match["end"]:
            return match.start()
    return len(text)


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
        return place + self._removed[bisect.bisect_right(self._places, place)]

    def place(self, offset: int) -> int:
        """Where what stood at an offset, or behind the end of the line there, is in the joined text."""
        return offset - self._removed[bisect.bisect_left(self._starts, offset)]


def as_read(source: str) -> str:
    """A source as a compiler can read it in one way alone, which is that of `tokens`: what the rules take for a comment
    is none of the code. Lines keep their numbers, and columns mostly.

    Raises:
        Unreadable: as `tokens`; or a backslash is left at the end of a line.
    """
    parts: list[str] = []
    kept, before, is_open, fresh = 0, "", False, True
    for token in tokens(source):
        text = token.text
        if token.kind == "comment":
            # What follows it on its last line begins none, and may look like a directive.
            text = _NO_NEWLINE.sub(" ", text) if fresh else " " * len(text)
            kept += token.text.count("\n") - text.count("\n")
        elif token.kind == "directive":
            text = (_IN_INCLUDE if _INCLUDE.match(text) else _IN_DIRECTIVE).sub(_apart, text)
            kept += token.text.count("\n")
        elif token.kind == "space" and "\n" in text:
            text = "\n" * kept + text
            kept = 0
        elif token.kind in ("string", "character") and before in ("name", "number", "string", "character"):
            # A name may be the suffix of what stands before it, the beginning of what follows, or a macro.
            text = f" {text}"
        if token.blank and "\n" in text:
            if is_open and not text.partition("\n")[0].strip(_BLANKS):
                raise Unreadable(f"line {token.line}: a backslash at the end of a line that does not continue")
            is_open = False
        elif bare := text.rstrip(_BLANKS):
            is_open = bare.endswith("\\")
        fresh = (fresh and token.blank) or (token.kind == "space" and "\n" in text)
        before = token.kind
        parts.append(text)
    if is_open:
        raise Unreadable("a backslash at the end of the source")
    return "".join(parts)


def _apart(match: re.Match[str]) -> str:
    """What stands in a directive instead of a comment, a literal, or anything else."""
    if match["comment"] is not None:
        return " "
    before = match.string[match.start() - 1 : match.start()]
    is_literal = match.lastgroup in ("string", "character")
    return f" {match[0]}" if is_literal and re.match(r"[\w\"'$\x80-\U0010ffff]", before) else match[0]


def text_of(parts: Sequence[Token]) -> str:
    return "".join(part.text for part in parts)


def items(source: str) -> list[Item]:
    """The top-level items of a source, in order; nothing is lost but blanks at the end.

    Raises:
        Unreadable: brackets do not match, or something else is not understood.
    """
    found = tokens(source)
    try:
        return list(_Reader(found).items(0, len(found)))
    except RecursionError:
        raise Unreadable("nested too deeply") from None


def unbalanced(source: str) -> str | None:
    """What is wrong with the brackets of a source that no compiler can make sense of; None where it may be right."""
    try:
        found = tokens(source)
    except Unreadable:
        return None
    for text in (token.text for token in found if token.kind == "directive"):
        if re.match(r"#\s*if", text) or (re.match(r"#\s*define", text) and not _is_balanced(text)):
            return None
    try:
        _partners(found)
    except Unreadable as why:
        return str(why)
    return None


def _is_balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in _CLOSING.items())


def _partners(found: Sequence[Token]) -> dict[int, int]:
    """Index of each opening bracket: that of its counterpart."""
    waiting: list[int] = []
    partners = {}
    for index, token in enumerate(found):
        if token.text in _CLOSING:
            waiting.append(index)
        elif token.text in _CLOSING.values():
            if not waiting:
                raise Unreadable(f"line {token.line}: {token.text!r} closes nothing")
            partners[waiting[-1]] = index
            opening = found[waiting.pop()]
            if _CLOSING[opening.text] != token.text:
                text = f"{token.text!r} does not close the {opening.text!r} of line {opening.line}"
                raise Unreadable(f"line {token.line}: {text}")
    if waiting:
        opening = found[waiting[-1]]
        raise Unreadable(f"line {opening.line}: {opening.text!r} is never closed")
    return partners


class _Reader:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._partners = _partners(found)

    def items(self, start: int, end: int) -> Iterator[Item]:
        """Items between two places."""
        while (place := self._after_blanks(start)) < end:
            if self._tokens[place].kind == "directive":
                item, after = Item("directive", self._cut(start, place + 1)), place + 1
            else:
                item, after = self._item(start, place, end)
            yield item
            start = after

    def _cut(self, start: int, end: int) -> tuple[Token, ...]:
        return tuple(self._tokens[start:end])

    def _after_blanks(self, place: int) -> int:
        while place < len(self._tokens) and self._tokens[place].blank:
            place += 1
        return place

    def _next(self, place: int) -> int:
        """The place after a token, or after the bracket that closes it."""
        return self._partners.get(place, place) + 1

    def _item(self, start: int, place: int, end: int) -> tuple[Item, int]:
        """An item that is no directive, and the place after it."""
        assigned = False
        while place < end:
            token = self._tokens[place]
            if token.kind == "directive":
                raise Unreadable(f"line {token.line}: a directive inside a declaration")
            if token.text == ";":
                return Item("declaration", self._cut(start, place + 1)), place + 1
            if token.text == "{" and not assigned:
                return self._braced(start, place, end)
            assigned |= token.text == "="
            place = self._next(place)
            if token.text == "template":
                place = self._after_angles(place, end)
            elif token.text == "operator":
                # Its name is made of marks; they end where its parameters begin.
                place = self._next(place) if self._partners.get(place) == place + 1 else place
                while place < end and self._tokens[place].text not in ("(", "{", ";"):
                    place += 1
        raise Unreadable("the source ends inside a declaration")

    def _braced(self, start: int, brace: int, end: int) -> tuple[Item, int]:
        """An item whose tokens up to here are followed by a brace, and the place after it."""
        words = [token.text for token in self._tokens[start:brace] if not token.blank]
        if not words:
            raise Unreadable(f"line {self._tokens[brace].line}: a brace that belongs to nothing")
        place = self._next(brace)
        if "namespace" in words[:2] or (words[0] == "extern" and len(words) == 2 and words[1][-1] == '"'):
            return Item("scope", self._cut(start, brace), tuple(self.items(brace + 1, place - 1))), place
        if not _is_record(words):
            return Item("function", self._cut(start, place), body=brace - start), place
        while place < end:
            place = self._next(place)
            if self._tokens[place - 1].text == ";":
                return Item("record", self._cut(start, place)), place
        raise Unreadable("a record without its semicolon")

    def _after_angles(self, place: int, end: int) -> int:
        """The place after the parameters of a template; explicit instantiations have none."""
        place = self._after_blanks(place)
        if place >= end or self._tokens[place].text != "<":
            return place
        depth = 0
        while place < end:
            depth += (self._tokens[place].text == "<") - (self._tokens[place].text == ">")
            place = self._next(place)
            if depth == 0:
                return place
        raise Unreadable("the parameters of a template never end")


def _is_record(words: Sequence[str]) -> bool:
    depth = 0
    for index, word in enumerate(words):
        depth += (word == "<") - (word == ">")
        if depth == 0 and word in _RECORDS:
            # `struct X f() {` is a function; `struct __align__(16) X {` is none.
            after = words[index + 1 :]
            return "(" not in after or after[0] in ("__align__", "alignas", "__attribute__")
        if depth == 0 and word == "(":
            return False
    return False

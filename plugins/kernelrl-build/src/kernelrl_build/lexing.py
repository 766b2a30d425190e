"""C++ and CUDA sources as tokens and as top-level items.

It reads just enough to split a source, to join it again, and to recognise a source that it does not understand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["Item", "Token", "Unreadable", "items", "text_of", "tokens", "unbalanced"]


class Unreadable(Exception):
    """The source is not understood; the text is the reason."""


@attrs.frozen
class Token:
    """A piece of a source; all of them together are the source."""

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
    """All tokens, with the blanks before them; for a scope, the tokens before its brace."""
    children: tuple[Item, ...] = ()
    """Items of a scope."""
    body: int = -1
    """For a function: index of the token that opens its body."""

    @property
    def line(self) -> int:
        return next((token.line for token in self.tokens if not token.blank), 1)

    @property
    def head(self) -> tuple[Token, ...]:
        """The tokens before the body of a function; all tokens of other items."""
        return self.tokens[: self.body] if self.kind == "function" else self.tokens

    @property
    def words(self) -> list[str]:
        """Texts of the head."""
        return [token.text for token in self.head if not token.blank]

    @property
    def text(self) -> str:
        """The text of the item, with the items of a scope."""
        inside = "".join(child.text for child in self.children)
        return text_of(self.tokens) + (f"{{{inside}\n}}" if self.kind == "scope" else "")

    def names(self) -> set[str]:
        """All names in the item."""
        found = {token.text for token in self.tokens if token.kind == "name"}
        for token in self.tokens:
            if token.kind == "directive":
                found |= set(re.findall(r"[A-Za-z_]\w*", token.text))
        return found.union(*(child.names() for child in self.children))


_NAME = r"[A-Za-z_$\x80-\U0010ffff][\w$\x80-\U0010ffff]*+"
_COMMENT = r"//(?:\\\n|[^\n])*+|/\*[\s\S]*?\*/"
_RAW = r'(?:u8|[uUL])?R"(?P<fence>[^()\\\s]{0,16})\('
_TOKEN = re.compile(
    rf"""
      (?P<space>(?:\s|\0|\\\n)++)
    | (?P<comment>{_COMMENT})
    | (?P<string>{_RAW}[\s\S]*?\)(?P=fence)"|(?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*+"?)
    | (?P<unclosed>{_RAW.replace("?P<fence>", "?:")}|/\*)
    | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w$]|\.)*+)
    | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\[\s\S])*+'?)
    | (?P<name>{_NAME})
    | (?P<mark>::|->|&&|\|\||[\s\S])
    """,
    re.VERBOSE | re.ASCII,
)
_DIRECTIVE = re.compile(
    rf"""\#(?!\#)(?:\\\n|{_COMMENT}|(?P<unclosed>/\*)|"(?:[^"\\\n]|\\.)*+"|'(?:[^'\\\n]|\\.)*+'|[^\n])*+""",
    re.VERBOSE | re.ASCII,
)
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_RECORDS = {"struct", "class", "union", "enum"}


def tokens(source: str) -> list[Token]:
    """The tokens of a source.

    Raises:
        Unreadable: a comment or raw string that is never closed.
    """
    # Compilers end lines at a carriage return as well.
    source = re.sub(r"\r\n?", "\n", source)
    found: list[Token] = []
    place, line, fresh = 0, 1, True
    while place < len(source):
        match = (_DIRECTIVE.match(source, place) if fresh else None) or _TOKEN.match(source, place)
        assert match is not None  # a mark is any character
        kind, text = match.lastgroup or "directive", match.group()
        if kind == "unclosed":
            # Refused at once: a search for its end from each further place would take forever.
            raise Unreadable(f"line {line}: a comment or a raw string that is never closed")
        found.append(Token(kind, text, line))
        line += text.count("\n")
        fresh = (fresh and found[-1].blank) or (kind == "space" and "\n" in text)
        place = match.end()
    return found


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
    """The mistake in the brackets of a source that no compiler can parse; None if the brackets may be right."""
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
    """Index of each opening bracket -> index of its closing one."""
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
            if token.kind == "directive" and self._is_macro_call(start, place):
                return Item("declaration", self._cut(start, place)), place
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
        if self._is_macro_call(start, end):
            return Item("declaration", self._cut(start, end)), end
        raise Unreadable("the source ends inside a declaration")

    def _is_macro_call(self, start: int, end: int) -> bool:
        """Whether the tokens are a name with arguments: a macro may be whole declarations, without a semicolon."""
        name = self._after_blanks(start)
        opening = self._after_blanks(name + 1)
        if opening not in self._partners or self._tokens[opening].text != "(":
            return False
        return self._tokens[name].kind == "name" and self._after_blanks(self._next(opening)) >= end

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

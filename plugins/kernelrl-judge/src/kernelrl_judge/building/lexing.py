"""C++ and CUDA sources as tokens and as top-level items. No compiler: just enough to take a file apart and put it
together again, and to know when it cannot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["Item", "Token", "Unreadable", "items", "text_of", "tokens", "unbalanced"]


class Unreadable(Exception):
    """The source is not what this reading understands; the text is why."""


@attrs.frozen
class Token:
    """A piece of a source; all of them together are the source, its continued lines joined."""

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

    def names(self) -> set[str]:
        """Every name in it."""
        found = {token.text for token in self.tokens if token.kind == "name"}
        for token in self.tokens:
            if token.kind == "directive":
                found |= set(re.findall(r"[A-Za-z_]\w*", token.text))
        return found.union(*(child.names() for child in self.children))


_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<comment>//(?:[^\n\\]|\\[\s\S])*|/\*[\s\S]*?\*/)
    | (?P<raw>(?:u8|[uUL])?R"(?P<mark_>[^()\\\s]{0,16})\([\s\S]*?\)(?P=mark_)")
    | (?P<unclosed>(?:u8|[uUL])?R"[^()\\\s]{0,16}\(|/\*)
    | (?P<string>(?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*")
    | (?P<number>\.?\d(?:'?[\w.]|[eEpP][+-])*)
    | (?P<character>(?:u8|[uUL])?'(?:[^'\\\n]|\\[\s\S])+')
    | (?P<name>[A-Za-z_$]\w*)
    | (?P<mark>::|->|&&|\|\||[^\w\s])
    """,
    re.VERBOSE,
)
_DIRECTIVE = re.compile(r"#(?:[^\n\\/]|\\\r?\n|\\|/(?![*/])|/\*[\s\S]*?\*/|//[^\n]*)*")
_CONTINUED = re.compile(
    r"""
      \\[^\S\n]*\n
    | (?P<kept>//[^\n\\]*+(?:\\[\s\S][^\n\\]*+)*+|/\*[\s\S]*?(?:\*/|\Z)
              |(?:u8|[uUL])?R"(?P<mark_>[^()\\\s]{0,16})\([\s\S]*?(?:\)(?P=mark_)"|\Z)
              |"[^"\\\n]*+(?:\\[\s\S][^"\\\n]*+)*+"?|'(?:[^'\\\n]|\\[^\n])'|\\[^\s])
    """,
    re.VERBOSE,
)
_JOINT = "\0"
_OPEN, _CLOSE = {"(": ")", "[": "]", "{": "}"}, {")", "]", "}"}
_RECORDS = {"struct", "class", "union", "enum"}


def tokens(source: str) -> list[Token]:
    """The tokens of a source.

    Raises:
        Unreadable: a character that begins no token, or a comment or raw string that nobody closes.
    """
    source = _joined(source)
    found: list[Token] = []
    place, line, fresh = 0, 1, True
    while place < len(source):
        if fresh and source[place] == "#":
            match = _DIRECTIVE.match(source, place)
            kind = "directive"
        else:
            match = _TOKEN.match(source, place)
            kind = (match.lastgroup or "") if match else ""
            kind = {"raw": "string", "mark_": "string"}.get(kind, kind)
        if match is None or kind == "unclosed":
            # What is never closed is refused at once: to search its end again from each further place takes forever.
            raise Unreadable(f"line {line}: unexpected {source[place]!r}")
        text = match.group()
        found.append(Token(kind, text, line))
        if kind not in ("space", "comment"):
            fresh = False
        if "\n" in text and kind != "string":
            fresh = True
        line += text.count("\n")
        place = match.end()
    return found


def _joined(source: str) -> str:
    """The source with lines that continue joined, for their ends may split a name. Lines keep their numbers."""
    if "\\" not in source or _JOINT in source:
        return source
    marked = _CONTINUED.sub(lambda match: match[0] if match["kept"] else _JOINT, source)
    if _JOINT not in marked:
        return source
    lines = marked.split("\n")
    return "\n".join(line.replace(_JOINT, "") + "\n" * line.count(_JOINT) for line in lines)


def text_of(parts: Sequence[Token]) -> str:
    return "".join(part.text for part in parts)


def items(source: str) -> list[Item]:
    """The top-level items of a source, in order; nothing is lost but blanks at the end.

    Raises:
        Unreadable: brackets do not match, or something else is not understood.
    """
    reader = _Reader(tokens(source))
    try:
        return list(reader.items(closing=False))
    except RecursionError:
        raise Unreadable("nested too deeply") from None


def unbalanced(source: str) -> str | None:
    """What is wrong with the brackets of a source that no compiler can make sense of; None where it may be right."""
    try:
        found = tokens(source)
    except Unreadable:
        return None
    directives = [token.text for token in found if token.kind == "directive"]
    for text in directives:
        if re.match(r"#\s*if", text) or (re.match(r"#\s*define", text) and not _is_balanced(text)):
            return None
    waiting: list[Token] = []
    for token in found:
        if token.kind != "mark":
            continue
        if token.text in _OPEN:
            waiting.append(token)
        elif token.text in _CLOSE:
            if not waiting:
                return f"line {token.line}: {token.text!r} closes nothing"
            opening = waiting.pop()
            if _OPEN[opening.text] != token.text:
                return f"line {token.line}: {token.text!r} does not close the {opening.text!r} of line {opening.line}"
    return f"line {waiting[-1].line}: {waiting[-1].text!r} is never closed" if waiting else None


def _is_balanced(text: str) -> bool:
    return all(text.count(opening) == text.count(closing) for opening, closing in _OPEN.items())


class _Reader:
    def __init__(self, found: list[Token]) -> None:
        self._tokens = found
        self._place = 0

    def items(self, *, closing: bool) -> Iterator[Item]:
        """Items up to the end, or up to the brace that closes the scope."""
        while True:
            start = self._place
            self._skip_blank()
            if self._place == len(self._tokens):
                if closing:
                    raise Unreadable("a brace is never closed")
                return
            token = self._tokens[self._place]
            if token.kind == "directive":
                self._place += 1
                yield Item("directive", tuple(self._tokens[start : self._place]))
            elif token.text == "}" and closing:
                self._place += 1
                return
            elif token.text == ";":
                self._place += 1
                yield Item("declaration", tuple(self._tokens[start : self._place]))
            else:
                yield self._item(start)

    def _skip_blank(self) -> None:
        while self._place < len(self._tokens) and self._tokens[self._place].blank:
            self._place += 1

    def _item(self, start: int) -> Item:
        seen_assignment = False
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.kind == "directive":
                raise Unreadable(f"line {token.line}: a directive inside a declaration")
            if token.text == ";":
                self._place += 1
                return Item("declaration", tuple(self._tokens[start : self._place]))
            if token.text == "template":
                self._place += 1
                self._skip_angles()
                continue
            if token.text == "operator":
                # Its name is made of marks; they end where its parameters begin.
                self._skip_operator()
                continue
            if token.text == "=" and token.kind == "mark":
                seen_assignment = True
            if token.text == "{" and not seen_assignment:
                return self._braced(start)
            if token.text in _OPEN and token.kind == "mark":
                self._skip_group()
                continue
            if token.text in _CLOSE and token.kind == "mark":
                raise Unreadable(f"line {token.line}: a bracket that nobody opened")
            self._place += 1
        raise Unreadable("the source ends inside a declaration")

    def _braced(self, start: int) -> Item:
        """An item whose tokens up to here are followed by a brace."""
        head = [token for token in self._tokens[start : self._place] if not token.blank]
        words = [token.text for token in head]
        if not words:
            raise Unreadable(f"line {self._tokens[self._place].line}: a brace that belongs to nothing")
        if "namespace" in words[:2] or (words[0] == "extern" and len(words) == 2 and head[1].kind == "string"):
            before = tuple(self._tokens[start : self._place])
            self._place += 1
            return Item("scope", before, tuple(self.items(closing=True)))
        body = self._place
        record = self._is_record(words)
        self._skip_group()
        if not record:
            return Item("function", tuple(self._tokens[start : self._place]), body=body - start)
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.text in _OPEN and token.kind == "mark":
                self._skip_group()
                continue
            self._place += 1
            if token.text == ";":
                return Item("record", tuple(self._tokens[start : self._place]))
        raise Unreadable("a record without its semicolon")

    @staticmethod
    def _is_record(words: list[str]) -> bool:
        rest = words
        if rest[0] == "template":
            depth = 0
            for index, word in enumerate(rest[1:], 1):
                depth += (word == "<") - (word == ">")
                if depth == 0:
                    rest = rest[index + 1 :]
                    break
        for index, word in enumerate(rest):
            if word in _RECORDS:
                # `struct X f() {` is a function; `struct __align__(16) X {` is none.
                after = rest[index + 1 :]
                return "(" not in after or after[:1] in (["__align__"], ["alignas"], ["__attribute__"])
            if word == "(":
                return False
        return False

    def _skip_angles(self) -> None:
        """Go past the parameters of a template; explicit instantiations have none."""
        self._skip_blank()
        if self._place == len(self._tokens) or self._tokens[self._place].text != "<":
            return
        depth = 0
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            if token.text in _OPEN and token.kind == "mark":
                self._skip_group()
                continue
            depth += (token.text == "<") - (token.text == ">")
            self._place += 1
            if depth == 0:
                return
        raise Unreadable("the parameters of a template never end")

    def _skip_operator(self) -> None:
        self._place += 1
        if [token.text for token in self._tokens[self._place : self._place + 2]] == ["(", ")"]:
            self._place += 2
        while self._place < len(self._tokens) and self._tokens[self._place].text not in ("(", "{", ";"):
            self._place += 1

    def _skip_group(self) -> None:
        """Go past a bracket and everything up to its counterpart."""
        waiting: list[str] = []
        while self._place < len(self._tokens):
            token = self._tokens[self._place]
            self._place += 1
            if token.kind != "mark":
                continue
            if token.text in _OPEN:
                waiting.append(_OPEN[token.text])
            elif token.text in _CLOSE:
                if not waiting or waiting.pop() != token.text:
                    raise Unreadable(f"line {token.line}: brackets do not match")
                if not waiting:
                    return
        raise Unreadable("a bracket is never closed")

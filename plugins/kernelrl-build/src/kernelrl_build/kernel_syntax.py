"""Functions, kernels and launches: recognises them in tokens, and writes them as code for the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_build.lexing import Item, Token, Unreadable, items, text_of

__all__ = [
    "Unsplittable",
    "declared",
    "external",
    "function_name",
    "head_names",
    "is_mutable_variable",
    "named",
    "parameters",
    "pieces",
    "with_launches",
    "without_kernel_bodies",
]

_NO_VARIABLE = {
    *("const", "constexpr", "extern", "using", "typedef", "template", "namespace", "struct", "class", "union", "enum"),
    *("friend", "static_assert", "asm", "__asm__"),
}
_WITH_ARGUMENTS = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "__align__", "alignas"}
_DROPPED = {"__global__", "__forceinline__", "__noinline__", "static", "inline"}
_TYPE_WORDS = {
    *("void", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "const", "volatile"),
    *("struct", "class", "enum", "typename", "__restrict__", "__restrict", "restrict", "auto"),
}
_NAME = re.compile(r"[A-Za-z_]\w*")


class Unsplittable(Exception):
    """The device compiler has to compile the whole source; the text is the reason."""


def without_kernel_bodies(source: str) -> str:
    """A source with empty bodies of its `__global__` functions; everything else keeps its line.

    A candidate whose outputs are correct without its kernels did not compute them with its kernels.

    Raises:
        Unreadable: a kernel may remain that does something.
    """
    return "".join(map(_emptied, items(source)))


def _emptied(item: Item) -> str:
    if item.kind == "scope":
        return text_of(item.tokens) + "{" + "".join(map(_emptied, item.children)) + "\n}"
    if not any("__global__" in token.text for token in item.head):
        # A kernel may also be after the head, for example in a body.
        if any(token.text == "__global__" for token in item.tokens):
            raise Unreadable(f"line {item.line}: a kernel inside of something else")
        return item.text
    if item.kind == "function":
        return text_of(item.head) + "{" + "\n" * text_of(item.tokens[item.body :]).count("\n") + "}"
    if item.kind == "declaration":
        return item.text
    raise Unreadable(f"line {item.line}: a {item.kind} that makes kernels")


def function_name(item: Item) -> str:
    """Name of a function; empty if it has none."""
    words = item.words
    return words[place] if (place := _place_of_name(words)) >= 0 else ""


def parameters(item: Item) -> list[list[str]] | None:
    """Words of each parameter of a function; None if the brackets are not understood."""
    words = item.words
    return pieces(words[_place_of_name(words) + 2 :], ")")


def _place_of_name(words: Sequence[str]) -> int:
    place = 0
    while place < len(words):
        if words[place] in _WITH_ARGUMENTS:
            depth = 0
            while (place := place + 1) < len(words):
                depth += (words[place] == "(") - (words[place] == ")")
                if depth == 0:
                    break
        elif words[place] == "(" and place and _NAME.fullmatch(words[place - 1]):
            return place - 1
        place += 1
    return -1


def pieces(words: Sequence[str], end: str) -> list[list[str]] | None:
    """The parts between commas up to the bracket that ends the list; None if the brackets are not understood."""
    found: list[list[str]] = [[]]
    depth = angles = 0
    for word in words:
        if depth == 0 and angles == 0 and word == end:
            return [] if found in ([[]], [["void"]]) else found
        depth += (word in ("(", "[", "{")) - (word in (")", "]", "}"))
        if depth == 0:
            angles += (word == "<") - (word == ">")
        if depth < 0 or angles < 0:
            return None
        if word == "," and depth == 0 and angles == 0:
            found.append([])
        else:
            found[-1].append(word)
    return None


def named(piece: Sequence[str], *, of_template: bool = False) -> str:
    """Name that a parameter declares; empty if it has none, or if that is not certain."""
    given = piece[: piece.index("=")] if "=" in piece else piece
    if "<" in piece[len(given) :] or "." in given or "(" in given:
        return ""
    while given and given[-1] == "]":
        given = given[: len(given) - 1 - given[::-1].index("[")]
    words = [word for word in given if _NAME.fullmatch(word)]
    before = given[-2] if len(given) > 1 else ""
    # The stub needs the address of each parameter, and a parameter without a name has none.
    if not words or given[-1] != words[-1] or words[-1] in _TYPE_WORDS or before == "::":
        return ""
    plain = [word for word in words if word not in ("const", "volatile", "struct", "enum", "class", "__restrict__")]
    enough = len(plain) > 1 or before in ("*", "&", ">") or (of_template and words[0] in ("typename", "class"))
    return words[-1] if enough else ""


def external(item: Item) -> str:
    """A kernel with external linkage, so that another unit finds it."""
    head = "".join(token.text for token in item.head if token.text not in ("static", "inline", "__forceinline__"))
    return head + text_of(item.tokens[len(item.head) :])


def declared(item: Item) -> str:
    """A kernel as a function of the host, without its body."""
    out: list[str] = []
    index, parts = 0, item.head
    while index < len(parts):
        token = parts[index]
        if token.text in _WITH_ARGUMENTS:
            index = _after_group(parts, index + 1)
            continue
        if token.text not in _DROPPED:
            out.append(token.text)
        index += 1
    return "".join(out).strip()


def with_launches(parts: Sequence[Token]) -> str:
    """Host code with each launch in the form that a device compiler generates."""
    out: list[str] = []
    index = 0
    while index < len(parts):
        token = parts[index]
        if token.kind == "directive" and "<<<" in token.text:
            raise Unsplittable(f"line {token.line}: a macro that launches a kernel")
        if token.text == "<" and [part.text for part in parts[index : index + 3]] == ["<", "<", "<"]:
            begin = _callee(parts, index)
            end = _end_of_launch(parts, index + 3)
            callee = text_of(parts[begin:index])
            del out[len(out) - (index - begin) :]
            configuration = with_launches(parts[index + 3 : end])
            arguments_end = _after_group(parts, end + 3)
            arguments = text_of(parts[end + 3 : arguments_end])
            out += [f"(::kernelrl::push({configuration}) ? (void)0 : {callee}{arguments})"]
            # The next launch requires one piece per token.
            out += [""] * (arguments_end - begin - 1)
            index = arguments_end
            continue
        out.append(token.text)
        index += 1
    return "".join(out)


def head_names(item: Item) -> set[str]:
    """Names in front of the body of a function or a record."""
    head: list[Token] = []
    for token in item.tokens:
        if token.text in ("(", "{") and head:
            break
        head.append(token)
    return {token.text for token in head if token.kind == "name"}


def is_mutable_variable(words: Sequence[str]) -> bool:
    """Whether the words of a declaration declare a variable that may change."""
    end = next((index for index, word in enumerate(words) if word in ("=", "{", "[", "(", ";")), len(words))
    head = words[:end]
    if len(head) < 2 or words[end] == "(" or set(head) & _NO_VARIABLE:
        return False
    return _NAME.fullmatch(head[-1]) is not None


def _callee(parts: Sequence[Token], place: int) -> int:
    """Index of the first token of the expression that is launched at `place`."""
    unknown = Unsplittable(f"line {parts[place].line}: a launch of something that is not a name")
    index = _before(parts, place)
    if index >= 0 and parts[index].text == ">":
        depth = nested = 0
        while index >= 0 and parts[index].text not in (";", "{", "}"):
            text = parts[index].text
            nested += (text == ")") - (text == "(")
            depth += ((text == ">") - (text == "<")) * (not nested)
            if depth == 0:
                break
            index -= 1
        if depth:
            raise Unsplittable(f"line {parts[place].line}: a launch that is not understood")
        index = _before(parts, index)
    if index < 0 or parts[index].kind != "name":
        raise unknown
    while index >= 2 and parts[index - 1].text == "::" and parts[index - 2].kind == "name":
        index -= 2
    if index >= 1 and parts[index - 1].text in (".", "->", "::"):
        raise unknown
    return index


def _before(parts: Sequence[Token], place: int) -> int:
    """Index of the last token before a place that is not blank, or -1."""
    return next((index for index in range(place - 1, -1, -1) if not parts[index].blank), -1)


def _end_of_launch(parts: Sequence[Token], place: int) -> int:
    """Index of the `>>>` of the launch whose configuration begins at `place`."""
    depth = 0
    for index in range(place, len(parts) - 2):
        depth += _step(parts[index])
        if depth == 0 and [part.text for part in parts[index : index + 3]] == [">", ">", ">"]:
            return index
    raise Unsplittable("a launch that never ends")


def _after_group(parts: Sequence[Token], place: int) -> int:
    """Index after the parentheses that begin at or after `place`."""
    while place < len(parts) and parts[place].blank:
        place += 1
    if place == len(parts) or parts[place].text != "(":
        raise Unsplittable("parentheses are missing")
    depth = 0
    for index in range(place, len(parts)):
        depth += _step(parts[index])
        if depth == 0:
            return index + 1
    raise Unsplittable("parentheses are never closed")


def _step(token: Token) -> int:
    """Change of the depth of brackets at a token."""
    return (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))

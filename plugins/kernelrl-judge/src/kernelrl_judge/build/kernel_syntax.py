"""Kernels, launches and other declarations as they stand in tokens: recognising them, and writing them for the host."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_judge.build.lexing import Item, Token, text_of

__all__ = [
    "Unsplittable",
    "declared",
    "external",
    "function_name",
    "head_names",
    "is_mutable_variable",
    "specialises",
    "with_launches",
]

_NO_VARIABLE = {
    *("const", "constexpr", "extern", "using", "typedef", "template", "namespace", "struct", "class", "union", "enum"),
    *("friend", "static_assert", "asm", "__asm__"),
}
_WITH_ARGUMENTS = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__attribute__", "__align__", "alignas"}
_DROPPED = {"__global__", "__forceinline__", "__noinline__", "static", "inline"}


class Unsplittable(Exception):
    """The source has to go through the device compiler as a whole; the text is why."""


def external(parts: Sequence[Token]) -> str:
    """A kernel with the linkage that lets another unit find it."""
    out: list[str] = []
    for index, token in enumerate(parts):
        if token.text == "{":
            return "".join(out) + text_of(parts[index:])
        out.append("" if token.text in ("static", "inline", "__forceinline__") else token.text)
    return "".join(out)


def declared(parts: Sequence[Token]) -> str:
    """A kernel as a function of the host."""
    out: list[str] = []
    index = 0
    while index < len(parts):
        token = parts[index]
        if token.text in _WITH_ARGUMENTS:
            index = _after_group(parts, index + 1)
            continue
        if token.text not in _DROPPED and token.kind != "comment":
            out.append(token.text)
        index += 1
    return "".join(out).strip()


def with_launches(parts: Sequence[Token]) -> str:
    """Host code in which each launch is what a device compiler makes of it."""
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
            # Pieces and tokens must stay in step for the next launch.
            out += [""] * (arguments_end - begin - 1)
            index = arguments_end
            continue
        out.append(token.text)
        index += 1
    return "".join(out)


def function_name(head: Sequence[Token]) -> str:
    """Name of a function from what stands before its body."""
    index = 0
    while index < len(head):
        token = head[index]
        if token.text in _WITH_ARGUMENTS:
            index = _after_group(head, index + 1)
            continue
        if token.text == "(" and index:
            before = next((part for part in reversed(head[:index]) if not part.blank), None)
            if before is not None and before.kind == "name":
                return before.text
        index += 1
    raise Unsplittable("a function without a name")


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
    return re.fullmatch(r"[A-Za-z_]\w*", head[-1]) is not None


def specialises(head: Sequence[Token]) -> bool:
    """Whether what stands before a body begins as the specialisation of a template does."""
    words = [token.text for token in head if not token.blank]
    return words[:3] == ["template", "<", ">"]


def _callee(parts: Sequence[Token], place: int) -> int:
    """Where the expression begins that is launched at `place`."""
    index = place - 1
    while index >= 0 and parts[index].blank:
        index -= 1
    if index >= 0 and parts[index].text == ">":
        depth = nested = 0
        while index >= 0:
            text = parts[index].text
            nested += (text == ")") - (text == "(")
            if not nested:
                depth += (text == ">") - (text == "<")
            if text in (";", "{", "}"):
                break
            index -= 1
            if depth == 0:
                break
        if depth:
            raise Unsplittable(f"line {parts[place].line}: a launch that is not understood")
        while index >= 0 and parts[index].blank:
            index -= 1
    if index < 0 or parts[index].kind != "name":
        raise Unsplittable(f"line {parts[place].line}: a launch of something that is not a name")
    while index >= 2 and parts[index - 1].text == "::" and parts[index - 2].kind == "name":
        index -= 2
    if index >= 1 and parts[index - 1].text in (".", "->", "::"):
        raise Unsplittable(f"line {parts[place].line}: a launch of something that is not a name")
    return index


def _end_of_launch(parts: Sequence[Token], place: int) -> int:
    """Where the `>>>` stands that belongs to a launch whose configuration begins at `place`."""
    depth = 0
    for index in range(place, len(parts) - 2):
        text = parts[index].text
        if parts[index].kind == "mark":
            depth += (text in "([{") - (text in ")]}")
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
        if parts[index].kind == "mark":
            depth += (parts[index].text in "([{") - (parts[index].text in ")]}")
        if depth == 0:
            return index + 1
    raise Unsplittable("parentheses are never closed")

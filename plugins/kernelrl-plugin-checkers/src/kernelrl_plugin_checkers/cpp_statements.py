"""What a statement of C++ outside of functions declares: a record or a function, and its name."""

from __future__ import annotations

from collections.abc import Container, Sequence

from kernelrl_plugin_checkers.cpp_tokens import Token, text_at
from kernelrl_plugin_checkers.cpp_vocabulary import words

__all__ = ["MOST_NESTED", "function_of", "is_prototype", "is_record", "name_of", "owners", "record_name"]

MOST_NESTED = 16
"""Scopes and conditions in each other that are told apart."""
_RECORDS = frozenset({"struct", "class", "union"})
_NO_FUNCTION = words("""
__launch_bounds__ __attribute__ __align__ alignas decltype noexcept __cluster_dims__ requires sizeof static_assert if
while for switch return operator explicit _Pragma constexpr
""")


def record_name(found: Sequence[Token], at: int) -> str:
    """Name behind `struct`, `typename` and the like, if it is declared there."""
    is_parameter = found[at].text in ("typename", "class") and text_at(found, at - 1) in ("<", ",")
    at += 1
    end = at + MOST_NESTED
    while at < min(end, len(found)) and found[at].text in (
        "class",
        "struct",
        ".",
        "__attribute__",
        "__align__",
        "alignas",
    ):
        if found[at].text in ("__attribute__", "__align__", "alignas"):
            at = _group_end(found, at + 1)
        at += 1
    if at >= len(found) or found[at].kind != "name":
        return ""
    after = text_at(found, at + 1)
    if is_parameter:
        return found[at].text if after in (",", ">", "=") else ""
    return found[at].text if after in ("{", ";", ":", "<", "final") else ""


def _group_end(found: Sequence[Token], at: int) -> int:
    """Place of the parenthesis that closes the one here."""
    depth, place = 0, at
    for place in range(at, min(at + 40, len(found))):
        depth += (found[place].text == "(") - (found[place].text == ")")
        if depth == 0:
            break
    return place


def is_record(statement: Sequence[Token]) -> bool:
    for index, token in enumerate(statement):
        if token.text in _RECORDS and token.kind == "name" and text_at(statement, index - 1) not in ("<", ",", "enum"):
            after = [part.text for part in statement[index + 1 : index + 3]]
            return (
                "(" not in [part.text for part in statement[index:]]
                or after[:1] in (["__align__"], ["alignas"], ["__attribute__"])
                or ":" in [part.text for part in statement[index:]]
            )
        if token.text == "(":
            return False
    return False


def function_of(statement: Sequence[Token], macros: Container[str] = ()) -> Token | None:
    """Name of the function that a statement outside of functions declares."""
    depth, angles = 0, 0
    is_template = text_at(statement, 0) == "template"
    for index, token in enumerate(statement):
        text = token.text
        if text in ("<", ">") and is_template:
            angles += 1 if text == "<" else -1
        elif text == "(":
            before = statement[index - 1] if index else None
            if depth == 0 and before is not None and before.text == ">":
                before = _before_angles(statement, index - 1)
            is_name = depth == 0 and before is not None and before.kind == "name" and before.text not in _NO_FUNCTION
            if is_name and before is not None and before.text not in macros:
                return before
            if depth == 0 and "operator" in [part.text for part in statement[max(0, index - 3) : index]]:
                return next(part for part in reversed(statement[:index]) if part.text == "operator")
            depth += 1
        elif text == ")":
            depth -= 1
        elif text == "=" and depth == 0 and angles <= 0 and text_at(statement, index - 1) != "operator":
            return None
    return None


def _before_angles(statement: Sequence[Token], at: int) -> Token | None:
    """The name before the arguments of a template that end here: `name<float>(`."""
    depth = 0
    for index in range(at, max(0, at - 40), -1):
        depth += (statement[index].text == ">") - (statement[index].text == "<")
        if depth == 0:
            return statement[index - 1] if statement[index - 1].text != "template" else None
    return None


def owners(statement: Sequence[Token], name: Token) -> tuple[str, ...]:
    """Records and namespaces before the name of a function: `void Owner::name()`."""
    index, found = statement.index(name), []
    while index >= 2 and statement[index - 1].text == "::" and statement[index - 2].kind == "name":
        found.append(statement[index - 2].text)
        index -= 2
    return tuple(reversed(found[:MOST_NESTED]))


def name_of(statement: Sequence[Token]) -> str:
    """Name of a record."""
    index = next(
        (
            i
            for i, token in enumerate(statement)
            if token.text in _RECORDS and text_at(statement, i - 1) not in ("<", ",")
        ),
        0,
    )
    return record_name(statement, index) or text_at(statement, index + 1)


def is_prototype(statement: Sequence[Token], name: Token) -> bool:
    words = {token.text for token in statement}
    if {"using", "typedef", "friend", "static_assert", "namespace"} & words:
        return False
    index = statement.index(name)
    return index > 0 and not (statement[0].text == "template" and text_at(statement, 1) != "<")

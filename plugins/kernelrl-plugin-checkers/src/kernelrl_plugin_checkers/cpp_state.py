"""What C++ keeps from one call to the next: results by the address of a tensor, calls counted, tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from kernelrl_plugin_checkers.cpp_tokens import Token, text_at

__all__ = ["kept_in_statics"]

_POINTERS = frozenset(
    {"data_ptr", "const_data_ptr", "mutable_data_ptr", "unsafeGetTensorImpl", "getIntrusivePtr", "storage"}
)
_MAPS = frozenset({"unordered_map", "map", "set", "unordered_set", "flat_hash_map"})
_LOOKUPS = frozenset({"find", "count", "at", "contains", "emplace", "try_emplace", "insert", "insert_or_assign"})
_NUMBERS = frozenset({"int", "long", "unsigned", "size_t", "uint64_t", "int64_t", "uint32_t", "int32_t", "atomic"})
_BREAKS = frozenset({";", "{", "}"})


@attrs.frozen
class _Kept:
    """A variable that outlives the call."""

    name: str
    start: int
    types: frozenset[str]


def kept_in_statics(found: Sequence[Token]) -> Iterator[tuple[str, int, str]]:
    """Breaches through `static`, `thread_local` and global variables.

    Args:
        found: tokens without blanks, comments and directives.
    Yields:
        Rule, offset in the text, and what was seen.
    """
    kept = {variable.name: variable for variable in _kept(found)}
    if not kept:
        return
    for variable in kept.values():
        if variable.types & {"Tensor", "TensorBase"}:
            yield "kept_state", variable.start, f"{variable.name} keeps tensors"
    statements = list(_statements(found))
    counted = {name for statement in statements for name in _counted(statement)} & {
        name for name, variable in kept.items() if variable.types & _NUMBERS
    }
    pointers: set[str] = set()
    for statement in statements:
        words = {token.text for token in statement if token.kind == "name"}
        by_pointer = bool(words & (_POINTERS | pointers))
        if by_pointer and len(statement) > 1:
            assigned = next((i for i, token in enumerate(statement) if token.text == "="), 0)
            if assigned and statement[assigned - 1].kind == "name" and statement[assigned - 1].text not in kept:
                pointers.add(statement[assigned - 1].text)
        for at, token in enumerate(statement):
            if token.kind != "name" or token.text not in kept:
                continue
            before, after = text_at(statement, at - 1), text_at(statement, at + 1)
            look = after == "[" or (after in (".", "->") and text_at(statement, at + 2) in _LOOKUPS)
            if by_pointer and look and kept[token.text].types & _MAPS:
                yield "result_cache", token.start, f"{token.text} is looked up by the address of a tensor"
            elif by_pointer and (after in ("==", "!=") or before in ("==", "!=")):
                yield "result_cache", token.start, f"{token.text} is compared with the address of a tensor"
            decides = words & {"if", "switch"} or any(part.text == "?" for part in statement)
            if token.text in counted and decides:
                counted.discard(token.text)
                yield "call_counter", token.start, f"{token.text} is counted, and decides"


def _counted(statement: Sequence[Token]) -> Iterator[str]:
    for at, token in enumerate(statement):
        if token.kind == "name" and {text_at(statement, at - 1), text_at(statement, at + 1)} & {"++", "+="}:
            yield token.text


def _statements(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    begin = 0
    for at, token in enumerate(found):
        if token.kind == "mark" and token.text in _BREAKS:
            if at > begin:
                yield found[begin:at]
            begin = at + 1
    if begin < len(found):
        yield found[begin:]


def _kept(found: Sequence[Token]) -> Iterator[_Kept]:
    """Variables with `static` or `thread_local`, and those outside of functions."""
    scopes: list[bool] = []
    statement: list[Token] = []
    for token in found:
        if token.kind == "mark" and token.text in _BREAKS:
            words = [part.text for part in statement if part.kind == "name"]
            is_scope = token.text == "{" and ("namespace" in words or words == ["extern"])
            if token.text in (";", "{") and not is_scope:
                yield from _variable(statement, outside=all(scopes))
            if token.text == "{":
                scopes.append(is_scope)
            elif token.text == "}" and scopes:
                scopes.pop()
            statement = []
        else:
            statement.append(token)


def _variable(statement: Sequence[Token], *, outside: bool) -> Iterator[_Kept]:
    words = [token.text for token in statement if token.kind == "name"]
    if not statement or {"constexpr", "using", "typedef", "return", "__shared__", "extern"} & set(words):
        return
    marked = words[:1] and ({"static", "thread_local"} & set(words[:3]))
    if not marked and not outside:
        return
    depth = 0
    name: Token | None = None
    types: set[str] = set()
    for token in statement:
        if token.text in ("<", ">") and token.kind == "mark":
            depth += 1 if token.text == "<" else -1
        elif token.text == "(" and depth == 0:
            # A function.
            return
        elif depth == 0 and token.kind == "mark" and token.text in ("=", "["):
            break
        elif token.kind == "name":
            if name is not None:
                types.add(name.text)
            if depth == 0:
                name = token
            else:
                types.add(token.text)
    if name is not None and types and not {"struct", "class", "enum", "union", "namespace", "template"} & set(words):
        yield _Kept(name.text, name.start, frozenset(types))

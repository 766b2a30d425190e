"""Where types begin and end in C++, and which types, namespaces and aliases a text makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from kernelrl_plugin_checkers.cpp_names import CppNames
from kernelrl_plugin_checkers.cpp_statements import record_name
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at
from kernelrl_plugin_checkers.cpp_vocabulary import BASIC_TYPES, PATTERNS, QUALIFIERS, UNQUALIFIED, words

__all__ = ["NO_NAMES", "Types"]

_MOST_TYPE = 120
"""Tokens of a type that are looked at."""
_NO_TYPE = words("""
return sizeof throw new delete case goto else do if while for switch operator co_return co_await co_yield and or not
this true false nullptr typeid alignof using namespace template typedef default try catch noexcept NULL threadIdx
blockIdx blockDim gridDim warpSize
""")
NO_NAMES = QUALIFIERS | BASIC_TYPES | _NO_TYPE
"""What no variable is called."""
_WITH_PARENTHESES = frozenset({"alignas", "__align__", "decltype", "__attribute__", "__launch_bounds__", "explicit"})
_NOT_IN_ANGLES = frozenset({";", "{", "}", "&&", "||"})
_TYPES_BEGIN = frozenset({"struct", "class", "union", "enum", "using", "typedef", "typename", "namespace"})


class Types:
    """Finds the types of a text."""

    def __init__(self, names: CppNames, found: Sequence[Token]) -> None:
        self._names, self._found = names, found

    def _types(self) -> None:
        """Types and namespaces, which declarations are known by."""
        found, names = self._found, self._names
        # Conditions are not told apart here: a type is no way out of the lists.
        for at, token in enumerate(found):
            text = token.text
            if token.kind != "name" or text not in _TYPES_BEGIN:
                continue
            if text == "namespace":
                self._namespace(at)
            elif text == "using":
                if text_at(found, at + 2) in ("=", "[") and text_at(found, at + 1) != "namespace":
                    names.types.setdefault(text_at(found, at + 1), set()).add(())
            elif text == "typedef":
                self._typedef(at)
            else:
                name = record_name(found, at)
                if name:
                    names.types.setdefault(name, set()).add(())

    def _namespace(self, at: int) -> None:
        found, names = self._found, self._names
        if text_at(found, at - 1) == "using":
            names.opened.add(tuple(token.text for token in found[at + 1 : at + 6 : 2] if token.kind == "name"))
            return
        name = text_at(found, at + 1)
        if text_at(found, at + 2) == "=":
            path: list[str] = []
            at += 3
            while at < len(found) and found[at].text != ";" and len(path) < 8:
                if found[at].kind == "name":
                    path.append(found[at].text)
                at += 1
            if path:
                names.aliases[name] = tuple(path)
            return
        for token in found[at + 1 : at + 16]:
            if token.text in ("{", ";"):
                break
            if token.kind == "name":
                names.namespaces.add(token.text)

    def _typedef(self, at: int) -> None:
        last, depth = "", 0
        for token in self._found[at + 1 : at + _MOST_TYPE]:
            if token.text == "typedef":
                return
            if token.text in ("{", "("):
                depth += 1
            elif token.text in ("}", ")"):
                depth -= 1
            elif depth == 0 and (token.text in (";", "[") or token.text == "__attribute__"):
                break
            elif token.kind == "name" and depth == 0:
                last = token.text
        if last:
            self._names.types.setdefault(last, set()).add(())

    def _type_end(self, at: int) -> int | None:
        """Place behind a type, if one begins here."""
        found, types = self._found, self._names.types
        end, seen = min(at + _MOST_TYPE, len(found)), False
        while at < end:
            token = found[at]
            text = token.text
            if token.kind == "string" and text == '"C"':
                at += 1
            elif (text in ("*", "&", "&&", "[") and seen) or token.kind != "name":
                break
            elif text in _WITH_PARENTHESES and text_at(found, at + 1) == "(":
                closed = self._closed(at + 1)
                if closed is None:
                    return None
                seen = seen or text == "decltype"
                at = closed
            elif text in QUALIFIERS:
                at += 1
            elif seen and text not in BASIC_TYPES:
                break
            elif text_at(found, at + 1) == "::" or text_at(found, at + 1) == "<" or _is_type(text, types):
                seen, at = True, self._path_end(at)
            else:
                break
        return at if seen and at < len(found) else None

    def _path_end(self, at: int) -> int:
        found = self._found
        while True:
            at += 1
            if text_at(found, at) == "<":
                closed = self._angles_closed(at)
                if closed is None:
                    return at
                at = closed
            if text_at(found, at) != "::":
                return at
            at += 1
            if text_at(found, at) == "template":
                at += 1
            if at >= len(found) or found[at].kind != "name":
                return at

    def _closed(self, at: int) -> int | None:
        return self._behind(at, self._pairs[0])

    def _angles_closed(self, at: int) -> int | None:
        return self._behind(at, self._pairs[1])

    def _behind(self, at: int, pairs: Mapping[int, int]) -> int | None:
        closed = pairs.get(at)
        return closed + 1 if closed is not None and closed - at < _MOST_TYPE else None

    @cached_property
    def _pairs(self) -> tuple[Mapping[int, int], Mapping[int, int]]:
        """Places of opening parentheses, and of `<` -> places of what closes them."""
        # All at once: a text of ten thousand `template<` would be searched from each of them.
        parentheses: dict[int, int] = {}
        angles: dict[int, int] = {}
        open_parentheses: list[int] = []
        open_angles: list[int] = []
        for at, token in enumerate(self._found):
            text = token.text
            if text == "(":
                open_parentheses.append(at)
            elif text == "<":
                open_angles.append(at)
            elif text == ")" and open_parentheses:
                parentheses[open_parentheses.pop()] = at
            elif text == ">" and open_angles:
                angles[open_angles.pop()] = at
            elif text in _NOT_IN_ANGLES:
                open_angles.clear()
        return parentheses, angles


def _is_type(name: str, types: Mapping[str, object]) -> bool:
    return (
        name in BASIC_TYPES
        or name in types
        or (name in UNQUALIFIED and name not in _NO_TYPE)
        or name.endswith("_t")
        or PATTERNS.fullmatch(name) is not None
    )

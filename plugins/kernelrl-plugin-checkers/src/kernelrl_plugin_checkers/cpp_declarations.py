"""Variables, parameters and members that a text of C++ declares."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_plugin_checkers.cpp_names import CppNames, Scope, Variable
from kernelrl_plugin_checkers.cpp_preprocessor import Preprocessor
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at
from kernelrl_plugin_checkers.cpp_types import NO_NAMES, Types
from kernelrl_plugin_checkers.cpp_vocabulary import BASIC_TYPES

__all__ = ["Declarations"]

_AFTER_NAME = frozenset({"=", ";", ",", ")", "[", "(", "{", ":", ">", "."})
_DECORATION = frozenset({"*", "&", "&&", "const", "__restrict__", "__restrict", "restrict", "volatile", "."})
_MOST_OF_DECLARATOR = 400
"""Tokens of a declarator that are looked at."""
_MOST_LOOKED_AT = 500_000
"""Tokens of declarators in a text that are looked at, each as often as a declarator holds it."""
_MAKE_TENSORS = frozenset(
    {"empty", "empty_like", "empty_strided", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like"}
)


class Declarations(Types):
    """Takes up declarations where they begin."""

    def __init__(self, names: CppNames, found: Sequence[Token]) -> None:
        super().__init__(names, found)
        self._preprocessor = Preprocessor(names)
        self._waiting: list[str] = []
        """Parameters of the head that is being read."""
        self._block: list[Variable] = []
        """Variables of the innermost block."""
        self._waiting_tensors: dict[str, bool] = {}
        self._left = _MOST_LOOKED_AT

    def _declaration(self, at: int, scope: Scope, parens: int) -> None:
        """Take up the names of a declaration, if one begins here."""
        found = self._found
        if scope.kind == "enum":
            self._names.values.setdefault(found[at].text, set()).add(self._preprocessor.when)
            return
        begin = at
        type_end = self._type_end(at)
        if type_end is None:
            return
        callable_ = found[type_end - 1].text not in BASIC_TYPES
        at = type_end
        if found[type_end - 1].text == "auto":
            bound = at + (text_at(found, at) in ("&", "&&"))
            if text_at(found, bound) == "[":
                for place in range(bound + 1, min(bound + 40, len(found))):
                    if found[place].text == "]":
                        return
                    if found[place].kind == "name":
                        self._variable(place, scope, 0, callable_=True)
                return
        if [text_at(found, at), text_at(found, at + 3), text_at(found, at + 4)] == ["(", ")", "["] and found[
            at + 2
        ].kind == "name":
            # `float (&row)[4]`
            self._variable(at + 2, scope, max(parens, 1), callable_=False)
            return
        in_for = scope.kind == "function" and text_at(found, begin - 2) == "for"
        is_parameter = (parens > 0 and not in_for) or text_at(found, begin - 1) in ("<", ",")
        while True:
            while text_at(found, at) in _DECORATION:
                at += 1
            if at >= len(found) or found[at].kind != "name" or found[at].text in NO_NAMES:
                return
            after = text_at(found, at + 1)
            if after not in _AFTER_NAME and after != "__attribute__":
                return
            if after == "(" and scope.kind in ("outside", "record"):
                # A function; its parameters are declarations of their own.
                return
            self._variable(at, scope, parens, callable_=after != "(" and (callable_ or self._is_function(at, parens)))
            self._tensor(at, type_end, scope)
            if is_parameter:
                return
            next_at = self._next_declarator(at + 1)
            if next_at is None:
                return
            at = next_at

    def _next_declarator(self, at: int) -> int | None:
        """Place behind the comma that ends a declarator."""
        found, depth = self._found, 0
        for place in range(at, min(at + _MOST_OF_DECLARATOR, len(found))):
            self._left -= 1
            if self._left < 0:
                return None
            text = found[place].text
            if text in ("(", "[", "{"):
                depth += 1
            elif text in (")", "]", "}"):
                depth -= 1
                if depth < 0 or (depth == 0 and text == "}" and text_at(found, place + 1) not in (",", ";")):
                    return None
            elif depth == 0:
                if text == ";":
                    return None
                if text == ",":
                    return place + 1
        return None

    def _variable(self, at: int, scope: Scope, parens: int, *, callable_: bool) -> None:
        names, name = self._names, self._found[at].text
        if scope.kind == "function":
            variable = Variable(at, callable_)
            self._block.append(variable)
            scope.variables.setdefault(name, []).append(variable)
        elif parens:
            self._waiting.append(name)
        elif scope.kind == "record":
            names.members.setdefault(name, set()).add(self._preprocessor.when)
        else:
            names.values.setdefault(name, set()).add(self._preprocessor.when)

    def _is_function(self, at: int, parens: int) -> bool:
        """Whether what is declared with `auto` is a parameter or a lambda."""
        return parens > 0 or [token.text for token in self._found[at + 1 : at + 3]] == ["=", "["]

    def _tensor(self, at: int, type_end: int, scope: Scope) -> None:
        found, name = self._found, self._found[at].text
        last = found[type_end - 1].text
        made = [token.text for token in found[at + 1 : at + 4]]
        is_tensor = (last == "Tensor" and found[at - 1].text not in ("*", ">")) or (
            last == "auto"
            and len(made) == 3
            and made[0] == "="
            and made[1] in ("torch", "at")
            and made[2] == "::"
            and text_at(found, at + 4) in _MAKE_TENSORS
        )
        known = scope.tensors if scope.kind == "function" else self._waiting_tensors
        known[name] = known.get(name, True) and is_tensor

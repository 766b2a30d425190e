"""The preprocessor in a text of C++: the conditions around a place, macros, and the functions that macros make."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_plugin_checkers.cpp_names import CppNames, When
from kernelrl_plugin_checkers.cpp_statements import MOST_NESTED
from kernelrl_plugin_checkers.cpp_tokens import Token
from kernelrl_plugin_checkers.cpp_vocabulary import words

__all__ = ["PASTED", "Preprocessor"]

_MOST_OF_MACRO = 4000
_CONDITION = re.compile(r"(?:#|%:)\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b\s*(.*)", re.DOTALL)
_HEAD_OF_MACRO = re.compile(r"(?:#|%:)\s*define\s+\w++\(\s*(\w++)")
PASTED = sorted(
    words("""
_kernel _cuda _hip _cpu _impl _forward _backward _fwd _bwd _launch _launcher _host _device _op _functor _vec4 _float
_half _f32 _f16 _bf16
""")
)
"""Endings that a macro may give to a name."""
_PARAMETER = re.compile(r"\w[ *&]+(\w++)(?= ?[=,;)])")
_DEFINE = re.compile(r"(?:#|%:)\s*define\s+(\w+)")


class Preprocessor:
    """Reads directives in their order."""

    def __init__(self, names: CppNames) -> None:
        self.when: When = ()
        """The conditions that hold."""
        self._names = names
        self._depths: list[int] = []
        self._makers: set[str] = set()
        """Macros that define functions."""

    def read(self, directive: Token, depth: int) -> None:
        """Take up a directive, with so many braces open around it."""
        match = _CONDITION.match(directive.text)
        if match is None:
            self._macro(directive.text)
            return
        word, rest = match[1], f"{match[1]} {' '.join(match[2].split())}"
        if word in ("if", "ifdef", "ifndef"):
            if len(self.when) >= MOST_NESTED:
                self._names.uneven.append(directive.start)
                return
            self.when = (*self.when, rest)
            self._depths.append(depth)
        elif self._depths:
            if self._depths[-1] != depth:
                self._names.uneven.append(directive.start)
            if word == "endif":
                self.when = self.when[:-1]
                self._depths.pop()
            else:
                # Chains may be long: a name of one length stands for all that was asked before.
                self.when = (*self.when[:-1], str(hash((self.when[-1], rest))))

    def _macro(self, directive: str) -> None:
        defined = _DEFINE.match(directive)
        if defined is None:
            return
        self._names.macros.setdefault(defined[1], set()).add(self.when)
        text = " ".join(directive[:_MOST_OF_MACRO].split())
        if _makes_functions(text):
            self._makers.add(defined[1])
            for name in _PARAMETER.findall(text):
                self._names.values.setdefault(name, set()).add(self.when)

    def made(self, statement: Sequence[Token]) -> None:
        """Take up functions that macros make: the macro is called outside of functions, with the name in front."""
        for index, token in enumerate(statement[:-2]):
            if token.text in self._makers and statement[index + 1].text == "(" and statement[index + 2].kind == "name":
                name = statement[index + 2].text
                for ending in ("", *PASTED):
                    self._names.functions.setdefault(name + ending, set()).add(self.when)
                    self._names.homes.setdefault(name + ending, set()).add(())


def _makes_functions(macro: str) -> bool:
    """Whether a macro defines a function that is named by its first parameter, with or without an ending."""
    head = _HEAD_OF_MACRO.match(macro)
    if head is None:
        return False
    made = rf"[\w>&*][\s&*]{{1,20}}{head[1]}(?:\s?##\s?_\w{{1,20}})?\s{{0,20}}\([^(){{}}]{{0,1000}}\)\s{{0,80}}\{{"
    return re.search(made, macro) is not None

"""What a text of C++ defines by itself, and in what scope each of its tokens stands."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence

import attrs

from kernelrl_plugin_checkers.cpp_tokens import Token

__all__ = ["CppNames", "Defined", "Scope", "Seen", "Variable", "When", "conditions", "visible"]

When = tuple[str, ...]
"""Conditions of the preprocessor around a place, from the outermost."""

Seen = tuple[int, str]
"""Offset in the text, and what was seen."""
_MOST_AROUND = 16
"""Blocks with a variable of the same name that are looked at for the one around a place."""


@attrs.define(eq=False)
class Variable:
    """A variable or parameter of a function."""

    begin: int
    """Number of the token of its declaration; 0 for a parameter."""
    callable: bool
    end: float = float("inf")
    """Number of the token that closes its block."""


@attrs.define(eq=False)
class Scope:
    """Where tokens stand: outside of functions, in a record or an enumeration, or in a function."""

    kind: str
    """`outside`, `record`, `enum`, `function` or `value`: the braces of an initialiser outside of functions."""
    device: bool = False
    """Whether the code runs on the device alone."""
    path: tuple[str, ...] = ()
    """Names of the namespaces and records around it."""
    variables: dict[str, list[Variable]] = attrs.field(factory=dict)
    """Variables and parameters, in the order of their declarations."""
    tensors: dict[str, bool] = attrs.field(factory=dict)
    """Variables and parameters -> whether all that are so named here are tensors."""

    def variable(self, name: str, at: int) -> Variable | None:
        """The variable of a name that a token can mean; None if there is none."""
        known = self.variables.get(name)
        if not known:
            return None
        last = bisect.bisect_right(known, at, key=lambda variable: variable.begin)
        return next((found for found in reversed(known[max(0, last - _MOST_AROUND) : last]) if at < found.end), None)


@attrs.define
class CppNames:
    """Names that one text defines, each with the conditions under which it does."""

    scopes: list[Scope] = attrs.field(factory=list)
    """The scope of each token."""
    changes: list[tuple[int, When]] = attrs.field(factory=list)
    """Numbers of tokens from which on other conditions hold."""
    types: dict[str, set[When]] = attrs.field(factory=dict)
    functions: dict[str, set[When]] = attrs.field(factory=dict)
    """Functions that have a body."""
    homes: dict[str, set[tuple[str, ...]]] = attrs.field(factory=dict)
    """Functions -> the namespaces and records that they are in."""
    declared: dict[str, int] = attrs.field(factory=dict)
    """Functions that are declared outside of functions -> offset; not all have a body."""
    values: dict[str, set[When]] = attrs.field(factory=dict)
    """Variables outside of functions, values of enumerations, parameters of templates."""
    members: dict[str, set[When]] = attrs.field(factory=dict)
    macros: dict[str, set[When]] = attrs.field(factory=dict)
    namespaces: set[str] = attrs.field(factory=set)
    opened: set[tuple[str, ...]] = attrs.field(factory=set)
    """The source's namespaces that `using namespace` opens."""
    aliases: dict[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Other names of namespaces."""
    globals: list[tuple[int, Sequence[Token]]] = attrs.field(factory=list)
    """Statements outside of functions and records, to their end or first brace, and the number of the first token."""
    heads: list[tuple[int, int]] = attrs.field(factory=list)
    """First and last offset of the head of each function."""
    uneven: list[int] = attrs.field(factory=list)
    """Offsets of conditions whose branches leave braces open, or close others."""


class Defined:
    """What all texts of a candidate define together."""

    def __init__(self, texts: Sequence[CppNames]) -> None:
        self.functions = frozenset(name for names in texts for name in names.functions)
        self.types = frozenset(name for names in texts for name in names.types)


def visible(known: dict[str, set[When]], name: str, when: When) -> bool:
    """Whether a name is defined wherever a place with these conditions is compiled."""
    places = known.get(name)
    return places is not None and (() in places or any(when[:count] in places for count in range(1, len(when) + 1)))


def conditions(changes: Sequence[tuple[int, When]], count: int) -> Iterator[tuple[range, When]]:
    """Stretches of tokens under the same conditions."""
    begin = 0
    when: When = ()
    for at, then in changes:
        if at > begin:
            yield range(begin, at), when
        begin, when = at, then
    if count > begin:
        yield range(begin, count), when

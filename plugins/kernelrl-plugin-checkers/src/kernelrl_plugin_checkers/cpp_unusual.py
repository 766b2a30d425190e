"""C++, CUDA and HIP that honest kernels do not need: all that is neither on the lists nor defined by the source."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence

from kernelrl_plugin_checkers.cpp_directives import unusual_directives
from kernelrl_plugin_checkers.cpp_globals import unusual_outside
from kernelrl_plugin_checkers.cpp_keywords import CONTEXTUAL, MOST_PATH, Keywords
from kernelrl_plugin_checkers.cpp_names import CppNames, Defined, Scope, Seen, When, conditions, visible
from kernelrl_plugin_checkers.cpp_preprocessor import PASTED
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at
from kernelrl_plugin_checkers.cpp_vocabulary import (
    DEVICE,
    FREE_ROOTS,
    KEYWORDS,
    MEMBERS,
    PATTERNS,
    ROOTS,
    UNQUALIFIED,
    VENDOR,
    is_known,
)
from kernelrl_plugin_checkers.torch_names import COMPUTING_METHODS, OPERATORS, REDUCTIONS, TENSOR_METHODS

__all__ = ["unusual"]

_OWN = "compute in a kernel or a loop of your own"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_OF_PYTHON = re.compile(r"_?Py[A-Za-z0-9]*_\w+")
"""Functions of the interpreter: who defines one of that name overloads it, and calls may mean either."""
_COMPUTING = (COMPUTING_METHODS | OPERATORS) - MEMBERS - REDUCTIONS
"""A last small reduction is tolerable in C++ as in Python."""
_POINTS = frozenset({".", "->", "::"})
_MAY_FOLLOW = frozenset({"*", "~"})
_MOST_HOMES = 64


def unusual(found: Sequence[Token], directives: Sequence[Token], names: CppNames, defined: Defined) -> Iterator[Seen]:
    """What a text uses that is neither on the lists nor defined by the source.

    Args:
        found: tokens without blanks, comments and directives.
        directives: the directives, without comments.
        names: what the text defines.
        defined: what all texts of the candidate define.
    """
    look = _Look(found, names, defined)
    yield from unusual_directives(directives, names, look)
    yield from unusual_outside(directives, names, defined)
    for stretch, when in conditions(names.changes, len(found)):
        yield from look.at(stretch, when)


class _Look(Keywords):
    """Looks at tokens one by one."""

    def __init__(self, found: Sequence[Token], names: CppNames, defined: Defined) -> None:
        super().__init__(found, names, defined)
        self._own: frozenset[str] = frozenset()
        always = {name for name in names.macros if () in names.macros[name]}
        always |= {name for name in names.functions if () in names.functions[name] and () in names.homes.get(name, ())}
        always |= names.namespaces | names.aliases.keys() | names.types.keys()
        self._free = {name for name in always - CONTEXTUAL if name.isidentifier() and name.isascii()}
        self._free = {name for name in self._free if not _OF_PYTHON.fullmatch(name)}
        self._known: dict[tuple[str, bool], bool] = {}

    def of_macro(self, body: Sequence[Token], own: frozenset[str]) -> Iterator[Seen]:
        """Look at the body of a macro, which may stand in code of the device."""
        look = copy.copy(self)
        look._found, look._own, look._attributes_end = body, own, 0
        return look.at(range(len(body)), (), Scope("function", device=True))

    def at(self, stretch: range, when: When, scope: Scope | None = None) -> Iterator[Seen]:
        found, scopes, free = self._found, self._names.scopes, self._free
        before = found[stretch.start - 1].text if stretch.start else ""
        for at in stretch:
            token = found[at]
            text = token.text
            if token.kind == "name":
                if before not in _POINTS:
                    if (text not in _LISTED and text not in free) or (
                        at + 1 < len(found) and found[at + 1].text == "::"
                    ):
                        note = self._name(at, when, scope or scopes[at])
                        if note:
                            yield token.start, note
                elif before != "::":
                    note = self._member(at, when, scope or scopes[at])
                    if note:
                        yield token.start, note
                elif at < 2 or found[at - 2].kind != "name" or found[at - 2].text in KEYWORDS:
                    note = self._after_colons(at, when, scope or scopes[at])
                    if note:
                        yield token.start, note
            elif token.kind == "mark":
                # Three points are none.
                is_dots = before == "." and "." in (text, text_at(found, at - 2))
                if before in _POINTS and text not in _MAY_FOLLOW and not is_dots:
                    yield token.start, f"{before} with no name behind it"
                elif text == "[" and before == "[" and at >= self._attributes_end:
                    yield from self._attributes(at + 1, 1)
                elif text == "*" and before == "(" and at >= 2 and at + 2 < len(found):
                    is_group = found[at + 1].kind == "name" and found[at + 2].text == ")"
                    is_declared = found[at - 2].kind == "name" or found[at - 2].text in (">", "*")
                    if is_group and is_declared and text_at(found, at + 3) == "(":
                        yield token.start, "a pointer to a function; call functions by their names"
                elif (
                    text == "%" and text_at(found, at + 1) in (":", ">") and found[at + 1].start == token.start + 1
                ) or (text == "<" and text_at(found, at + 1) == "%" and found[at + 1].start == token.start + 1):
                    yield token.start, "a mark in another spelling; write it as usual"
            elif token.kind in ("string", "character") and not text.endswith(('"', "'")):
                yield token.start, "a literal with a suffix; convert the value with a cast"
            before = text

    def _name(self, at: int, when: When, scope: Scope) -> str | None:
        found, names = self._found, self._names
        text, after = found[at].text, text_at(self._found, at + 1)
        if at < self._attributes_end:
            return None
        if after == "::":
            return self._path(at, when)
        if text in CONTEXTUAL:
            return self._contextual(at, scope)
        called = after == "("
        if _WORD.fullmatch(text) is None:
            return f"{text[:40]!r}, a name of other characters than letters, digits and underscores"
        if text in self._own:
            return None
        if _OF_PYTHON.fullmatch(text):
            return f"{text[:60]}, a name of the interpreter's; {_instead(text)}"
        if scope.tensors.get(text) and not scope.device:
            other = text_at(found, at + 2)
            is_whole = text_at(found, at + 3) not in (".", "->", "[")
            if after in _ARITHMETIC and ((scope.tensors.get(other) and is_whole) or other in _OF_TORCH):
                return f"arithmetic on the tensor {text[:40]}; {_OWN}"
        if called and text in _COMPUTING and not scope.device and self._takes_tensor(at + 2, scope):
            return f"{text}, which is torch's where its arguments are tensors; {_OWN}, under another name"
        if visible(names.macros, text, when):
            return None
        if visible(names.functions, text, when):
            if not called or scope.device or scope.kind != "function" or self._is_near(text, scope):
                return None
            return f"{text[:60]}, which the source defines in another namespace or type; name that"
        if called and text in _COMPUTING:
            return f"{text}, an operation of a library; {_OWN}" if text not in self._defined.functions else None
        variable = scope.variable(text, at)
        if variable is not None:
            if not called or variable.callable or scope.device or variable.begin == at:
                return None
            return f"{text[:60]}, which is no function here"
        if (not called or scope.device) and any(visible(known, text, when) for known in (names.values, names.members)):
            return None
        if (text in self._defined.functions and text not in names.functions) or text in self._defined.types:
            return None
        key = (text, scope.device)
        if key not in self._known:
            self._known[key] = PATTERNS.fullmatch(text) is not None or (
                scope.device and DEVICE.fullmatch(text) is not None
            )
        if self._known[key] or any(text + ending in names.functions for ending in PASTED):
            return None
        if text in ROOTS or text in FREE_ROOTS or (called and VENDOR.fullmatch(text)):
            return None
        return f"{text[:60]}, which the source does not define and kernels do not need; {_instead(text)}"

    def _is_near(self, name: str, scope: Scope) -> bool:
        """Whether a function is found by its name alone."""
        homes = self._names.homes.get(name, ())
        if len(homes) > _MOST_HOMES:
            return () in homes
        return any(scope.path[: len(home)] == home or home in self._names.opened for home in homes) or not homes

    def _takes_tensor(self, at: int, scope: Scope) -> bool:
        """Whether one of the arguments from here on is a tensor."""
        found = self._found
        for place in range(at, min(at + 40, len(found))):
            if found[place].text in (";", "{", "}"):
                return False
            around = (text_at(found, place - 1), text_at(found, place + 1))
            if scope.tensors.get(found[place].text) and around[0] in ("(", ",") and around[1] in (")", ","):
                return True
        return False

    def _path(self, at: int, when: When) -> str | None:
        """What is wrong with a qualified name that begins here."""
        found, names = self._found, self._names
        path = [found[at].text]
        place = at + 1
        while text_at(found, place) == "::" and len(path) < MOST_PATH:
            place += 1
            if text_at(found, place) == "template":
                place += 1
            if place >= len(found) or found[place].kind != "name":
                # A mark behind the colons is told where it stands.
                break
            path.append(found[place].text)
            place += 1
        root = path[0]
        if any(part in names.macros for part in path):
            return "a macro in a qualified name; write the name"
        full = (*names.aliases.get(root, (root,)), *path[1:])
        if root in KEYWORDS:
            # `return ::name`
            return self._path(at + 2, when) if len(path) > 2 else None
        if full[0] in ROOTS or full[0] in FREE_ROOTS:
            # An operator is told of by its own rule, which users may loosen.
            if len(full) == 1 or is_known(full) or (full[0] in _OF_TORCH and _is_operator(full[-1])):
                return None
            return f"{'::'.join(full)[:80]}, which kernels do not need; {_instead('::'.join(full))}"
        if root in ("wmma",) and is_known(("nvcuda", *path)):
            return None
        if root in names.namespaces or root in names.types or root in self._defined.types:
            return next((note for part in path[1:] if (note := self._part(part, when))), None)
        if root in UNQUALIFIED or PATTERNS.fullmatch(root):
            # A static member of a listed type, its namespace opened.
            return (
                None
                if path[-1] in MEMBERS or is_known(("at", *path))
                else f"{'::'.join(path)[:80]}, which kernels do not need"
            )
        if len(path) == 1:
            return None
        return f"{'::'.join(path)[:80]}, of a namespace that kernels do not need; {_instead('::'.join(full))}"

    def _part(self, name: str, when: When) -> str | None:
        """What is wrong with a name inside of a namespace or type of the source."""
        names = self._names
        if name in names.types or name in names.namespaces or name in self._defined.functions or name in MEMBERS:
            return None
        if (
            any(visible(known, name, when) for known in (names.members, names.values, names.functions))
            or name == "operator"
        ):
            return None
        return f"{name[:60]}, which nothing of the source defines; {_instead(name)}"

    def _after_colons(self, at: int, when: When, scope: Scope) -> str | None:
        found = self._found
        before = text_at(found, at - 2)
        text = found[at].text
        if before == ">":
            return self._part(text, when) if text != "template" else None
        if before == ")":
            return "a member of a type that is computed; name the type"
        if text_at(found, at + 1) == "::":
            return self._path(at, when)
        return self._name(at, when, scope) if text not in _LISTED and text not in self._free else None

    def _member(self, at: int, when: When, scope: Scope) -> str | None:
        found, names = self._found, self._names
        text = found[at].text
        if text == "operator":
            return self._contextual(at, scope)
        if text == "template":
            return None
        if text in self._names.macros:
            return "a macro as a member; write the name"
        if text in _COMPUTING and not scope.device:
            place = at + 1
            while text_at(found, place) == ")":
                place += 1
            if text_at(found, place) in ("(", "<") and not (place == at + 1 and text in TENSOR_METHODS):
                return f"the method {text} of a tensor; {_OWN}"
        if text in MEMBERS or text in REDUCTIONS or text in self._own:
            return None
        if visible(names.members, text, when) or text in names.types or (text in names.values):
            return None
        if scope.device and text in _DEVICE_MEMBERS:
            return None
        return f"the member {text[:60]}, which nothing of the source has and kernels do not need; {_instead(text)}"


_OF_TORCH = frozenset({"at", "torch"})
_LISTED = UNQUALIFIED - CONTEXTUAL
_DEVICE_MEMBERS = frozenset({"num_elements", "x", "y", "z", "w"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "+=", "-=", "==", "!=", "<", ">"})


def _is_operator(name: str) -> bool:
    return name in OPERATORS or name.removesuffix("_out").removesuffix("_outf").rstrip("_") in OPERATORS


def _instead(name: str) -> str:
    if name.startswith(("at::", "torch::", "c10::")):
        return "allocate, ask for sizes and pointers, and " + _OWN
    if name.startswith(("py", "Py", "_Py")):
        return "take and return tensors and numbers, and leave Python to Python"
    if name.startswith(("std::", "cub::", "thrust::", "cublas", "cudnn", "hipblas", "miopen")):
        return "write it yourself, with arrays and vectors"
    return _OWN

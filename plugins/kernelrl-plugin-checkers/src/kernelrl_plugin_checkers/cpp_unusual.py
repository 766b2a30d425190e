"""C++, CUDA and HIP that honest kernels do not need: all that is neither on the lists nor defined by the source."""

from __future__ import annotations

import bisect
import copy
import re
from collections.abc import Iterator, Sequence

from kernelrl_plugin_checkers.cpp_names import CppNames, Scope, When, conditions, visible
from kernelrl_plugin_checkers.cpp_preprocessor import PASTED
from kernelrl_plugin_checkers.cpp_tokens import Token, text_at, tokens
from kernelrl_plugin_checkers.cpp_vocabulary import (
    ATTRIBUTES,
    CONDITIONS,
    DEVICE,
    FREE_ROOTS,
    HEADERS,
    KEYWORDS,
    MEMBERS,
    OPEN_NAMESPACES,
    PATTERNS,
    PRAGMAS,
    ROOTS,
    UNQUALIFIED,
    VENDOR,
    is_known,
)
from kernelrl_plugin_checkers.torch_names import COMPUTING_METHODS, OPERATORS, REDUCTIONS, TENSOR_METHODS

__all__ = ["Defined", "unusual"]

Seen = tuple[int, str]
"""Offset in the text, and what was seen."""

_OWN = "compute in a kernel or a loop of your own"
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_DIRECTIVE = re.compile(r"(?:#|%:)[ \t]*+(\w*+)[ \t]*+([\s\S]*)")
_INCLUDED = re.compile(r"[<\"]([^<>\"]*)[>\"]\s*")
_DEFINED = re.compile(r"(\w++)(\(([^)]*)\))?([\s\S]*)")
_COMPUTING = (COMPUTING_METHODS | OPERATORS) - MEMBERS - REDUCTIONS
"""A last small reduction is tolerable in C++ as in Python."""
_POINTS = frozenset({".", "->", "::"})
_MAY_FOLLOW = frozenset({"*", "~"})
_NEVER = {
    "goto": "goto",
    "co_await": "a coroutine",
    "co_yield": "a coroutine",
    "co_return": "a coroutine",
}
_MOST_PATH = 12
_MOST_HOMES = 64


class Defined:
    """What all texts of a candidate define together."""

    def __init__(self, texts: Sequence[CppNames]) -> None:
        self.functions = frozenset(name for names in texts for name in names.functions)
        self.types = frozenset(name for names in texts for name in names.types)


def unusual(found: Sequence[Token], directives: Sequence[Token], names: CppNames, defined: Defined) -> Iterator[Seen]:
    """What a text uses that is neither on the lists nor defined by the source.

    Args:
        found: tokens without blanks, comments and directives.
        directives: the directives, without comments.
        names: what the text defines.
        defined: what all texts of the candidate define.
    """
    look = _Look(found, names, defined)
    yield from _of_directives(directives, names, look)
    yield from _of_outside(directives, names, defined)
    for stretch, when in conditions(names.changes, len(found)):
        yield from look.at(stretch, when)


class _Look:
    """Looks at tokens one by one."""

    def __init__(self, found: Sequence[Token], names: CppNames, defined: Defined) -> None:
        self._found, self._names, self._defined = found, names, defined
        self._own: frozenset[str] = frozenset()
        self._attributes_end = 0
        always = {name for name in names.macros if () in names.macros[name]}
        always |= {name for name in names.functions if () in names.functions[name] and () in names.homes.get(name, ())}
        always |= names.namespaces | names.aliases.keys() | names.types.keys()
        self._free = {name for name in always - _CONTEXTUAL if name.isidentifier() and name.isascii()}
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
        if text in _CONTEXTUAL:
            return self._contextual(at, scope)
        called = after == "("
        if _WORD.fullmatch(text) is None:
            return f"{text[:40]!r}, a name of other characters than letters, digits and underscores"
        if text in self._own:
            return None
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

    def _contextual(self, at: int, scope: Scope) -> str | None:
        found = self._found
        text, before, after = found[at].text, text_at(found, at - 1), text_at(found, at + 1)
        if text in _NEVER:
            return f"{_NEVER[text]}; write loops and branches"
        if text == "__attribute__":
            return next((note for _, note in self._attributes(at + 1, 0)), None)
        if text in ("asm", "__asm__"):
            return None if scope.device else "assembly outside of device code; write C++ or intrinsics"
        if text == "extern":
            if after == "__shared__" or (after == '"C"' and text_at(found, at + 2) in ("__global__", "{")):
                return None
            if (after == '"C"' and scope.kind == "outside") or after == '"C"':
                return self._extern_c(at)
            return "extern, for a name that the source does not define; define what you use"
        if text == "operator":
            if before in ("return", "=", "(", ",", ".", "->"):
                return "an operator that is called by its name; write it as usual"
            if after in ("new", "delete", "co_await", ",", "->", "&") or after.startswith('"'):
                return f"operator {after[:20]}; define functions with names"
            return None
        if text == "using":
            return self._using(at)
        if text in ("static", "thread_local"):
            return self._static(at) if scope.kind == "function" and not scope.device else None
        return None

    def _static(self, at: int) -> str | None:
        """What is wrong with a variable that keeps its value; what keeps tensors has a rule of its own."""
        words = []
        for token in self._found[at + 1 : at + 40]:
            if token.text in ("=", ";", "(", "{"):
                break
            if token.kind == "name":
                words.append(token.text)
        if len(words) < 2 or {"const", "constexpr", "Tensor", "inline"} & set(words) or _is_kept(words):
            return None
        heads, start = self._names.heads, self._found[at].start
        below = bisect.bisect_right(heads, (start, len(self._found) + start)) - 1
        if below >= 0 and start < heads[below][1]:
            return None
        return f"{words[-1][:40]} keeps its value from one call to the next; make it anew, or const"

    def _extern_c(self, at: int) -> str | None:
        for place in range(at + 2, min(at + 40, len(self._found))):
            text = self._found[place].text
            if text == "__global__":
                return None
            if text == "(":
                name = self._found[place - 1].text
                if name in UNQUALIFIED or PATTERNS.fullmatch(name) or _RESERVED.match(name) or "_" not in name:
                    return f'extern "C" {name}; give functions of C names of your own, of two words'
                return None
            if text in ("{", ";"):
                break
        return 'extern "C" of something else than a function; define functions'

    def _using(self, at: int) -> str | None:
        found = self._found
        if text_at(found, at + 1) != "namespace":
            return None
        path: list[str] = []
        place = at + 2
        while place < len(found) and found[place].text != ";" and len(path) < _MOST_PATH:
            if found[place].kind == "name":
                path.append(found[place].text)
            place += 1
        if not path:
            return None
        path = [*self._names.aliases.get(path[0], (path[0],)), *path[1:]]
        whole = "::".join(path)
        if whole in OPEN_NAMESPACES or (path[0] in self._names.namespaces and path[0] not in ROOTS):
            return None
        return f"using namespace {whole[:60]}; name what you need with its namespace"

    def _attributes(self, at: int, depth: int) -> Iterator[Seen]:
        for place in range(at, min(at + 60, len(self._found))):
            token = self._found[place]
            self._attributes_end = place + 1
            if token.text in ("(", "["):
                depth += 1
            elif token.text in (")", "]"):
                depth -= 1
                if depth <= 0:
                    return
            elif token.kind == "name" and token.text not in _IN_ATTRIBUTES and not self._is_number(token.text):
                yield token.start, f"the attribute {token.text[:40]}; kernels need alignment and inlining alone"

    def _is_number(self, name: str) -> bool:
        names = self._names
        return name in names.values or name in names.macros or name in names.types

    def _path(self, at: int, when: When) -> str | None:
        """What is wrong with a qualified name that begins here."""
        found, names = self._found, self._names
        path = [found[at].text]
        place = at + 1
        while text_at(found, place) == "::" and len(path) < _MOST_PATH:
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
_CONTEXTUAL = frozenset(
    {"asm", "__asm__", "extern", "__attribute__", "operator", "using", "static", "thread_local", *_NEVER}
)
_LISTED = UNQUALIFIED - _CONTEXTUAL
_IN_ATTRIBUTES = ATTRIBUTES | {"sizeof", "alignof", "alignas", "float", "int", "double", "half", "scalar_t"}
_DEVICE_MEMBERS = frozenset({"num_elements", "x", "y", "z", "w"})
_KEPT = frozenset({"bool", "int", "auto"})
"""Types of what honest code keeps: device properties, handles, and whether a limit has been set."""
_HANDLE = re.compile(r"(?:cuda|hip)DeviceProp\w*|(?:cuda|hip|cublas|hipblas|cudnn)(?:Lt)?(?:Handle|Stream|Event)_t")
_ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "+=", "-=", "==", "!=", "<", ">"})
_RESERVED = re.compile(
    r"_|cuda|hip|cu[A-Z]|Py|py|c10|at_|aten|torch|pthread|omp_|GOMP|clock|time|sched|sys|mem|str|std"
)


def _is_operator(name: str) -> bool:
    return name in OPERATORS or name.removesuffix("_out").removesuffix("_outf").rstrip("_") in OPERATORS


def _is_kept(words: Sequence[str]) -> bool:
    return words[0] in _KEPT or any(_HANDLE.fullmatch(word) for word in words)


def _instead(name: str) -> str:
    if name.startswith(("at::", "torch::", "c10::")):
        return "allocate, ask for sizes and pointers, and " + _OWN
    if name.startswith(("py", "Py", "_Py")):
        return "take and return tensors and numbers, and leave Python to Python"
    if name.startswith(("std::", "cub::", "thrust::", "cublas", "cudnn", "hipblas", "miopen")):
        return "write it yourself, with arrays and vectors"
    return _OWN


def _of_directives(directives: Sequence[Token], names: CppNames, look: _Look) -> Iterator[Seen]:
    for token in directives:
        match = _DIRECTIVE.match(token.text)
        word, rest = (match[1], match[2]) if match else ("", "")
        note: str | None = None
        if word == "include":
            header = _INCLUDED.fullmatch(rest)
            if header is None or (HEADERS.fullmatch(header[1]) is None):
                note = f"the header {rest.strip()[:60]}; include those of torch, the device, math and containers"
        elif word == "pragma":
            if PRAGMAS.match(rest) is None:
                note = f"the pragma {rest.strip()[:40]}; unroll, omp and warnings are enough"
            elif rest.lstrip().startswith("omp"):
                yield from _of_pragma(token, rest, names)
        elif word == "define":
            yield from _of_macro(token, rest, names, look)
        elif word in ("if", "ifdef", "ifndef", "elif", "elifdef", "elifndef"):
            asked = [name for name in re.findall(r"[A-Za-z_]\w*+", rest) if name not in names.macros]
            other = next((name for name in asked if not CONDITIONS.fullmatch(name)), None)
            if other and word != "ifndef":
                note = f"a condition on {other[:40]}; ask for the architecture or for macros of your own"
            elif not asked and not any(name in names.macros for name in re.findall(r"[A-Za-z_]\w*+", rest)):
                note = "a condition that is always the same; leave out what is not compiled"
        elif word == "undef":
            if rest.strip() not in names.macros:
                note = f"#undef {rest.strip()[:40]}, which the source does not define"
        elif word not in ("else", "endif", "error", "warning", ""):
            note = f"the directive #{word[:20]}"
        if note:
            yield token.start, note


def _of_pragma(token: Token, rest: str, names: CppNames) -> Iterator[Seen]:
    # Names of the loop around it are known to the compiler alone: calls are what leads elsewhere.
    for match in re.finditer(r"\b([A-Za-z_]\w*+)(?=\s*\()", rest):
        name = match[1]
        if name not in _CLAUSES and name not in names.functions and name not in UNQUALIFIED:
            yield token.start, f"{name[:40]} in a pragma"


_CLAUSES = frozenset(
    [
        "private",
        "firstprivate",
        "lastprivate",
        "shared",
        "reduction",
        "schedule",
        "collapse",
        "num_threads",
        "default",
        "if",
        "safelen",
        "simdlen",
        "aligned",
        "linear",
        "proc_bind",
        "copyin",
        "hint",
        "inclusive",
        "exclusive",
        "order",
        "critical",
        "declare",
        "simd",
        "ordered",
        "nontemporal",
        "uniform",
        "atomic",
        "initializer",
        "depend",
        "static",
        "dynamic",
        "guided",
    ]
)


def _of_macro(token: Token, rest: str, names: CppNames, look: _Look) -> Iterator[Seen]:
    match = _DEFINED.match(rest)
    if match is None:
        return
    name, body = match[1], _BLANKS.sub(" ", match[4])
    if name in KEYWORDS or name in ROOTS or (name in UNQUALIFIED and not _is_constant(body)):
        yield token.start, f"a macro named {name}, which means something else; name it otherwise"
    parts = list(tokens(_PASTED_END.sub("", body), blanks=False))
    if not parts:
        return
    offset = token.start
    parameters = frozenset(re.findall(r"\w++", match[3] or ""))
    if (parts[0].kind == "directive" or "##" in body or "%:%:" in body) and not _PASTED_ALONE.fullmatch(body):
        yield offset, f"the macro {name[:40]} pastes names; write them, or use a template"
        return
    if parts[0].text in _POINTS or parts[-1].text in _POINTS:
        yield offset, f"the macro {name[:40]} is part of a name; write the name"
        return
    for before, part, after in zip([None, *parts], parts, [*parts[1:], None], strict=False):
        if part.kind != "name" or part.text not in parameters:
            continue
        if (before and before.text in _POINTS and not _is_dots(parts, before)) or (after and after.text == "::"):
            yield offset, f"a parameter of the macro {name[:40]} is part of a name; write the name, or use a template"
            return
    for _, note in look.of_macro(parts, parameters | frozenset(_declared_in(parts))):
        if not note.startswith("a literal with"):
            yield offset, f"{note}, in a macro"


def _is_dots(parts: Sequence[Token], before: Token) -> bool:
    """Whether a point is the last of three."""
    index = parts.index(before)
    return before.text == "." and index > 0 and parts[index - 1].text == "."


def _declared_in(parts: Sequence[Token]) -> Iterator[str]:
    for before, part, after in zip(parts, parts[1:], [*parts[2:], None], strict=False):
        is_typed = part.kind == "name" and (before.kind == "name" or before.text in ("*", "&", ">"))
        if is_typed and after is not None and after.text in ("=", ";", "[", ",", ":", ")"):
            yield part.text


_BLANKS = re.compile(r"[\s\0]++")
_PASTED_END = re.compile(rf" ?## ?(?:{'|'.join(PASTED)})\b")
_PASTED_ALONE = re.compile(rf"(?:[^#%]|#(?!#)|%(?!:)|## ?(?:{'|'.join(PASTED)})\b)*+")


def _is_constant(body: str) -> bool:
    return re.fullmatch(r"[\s()]*+-?[\d.][-+\w.]*+[\s()]*+|\s*__\w+__\s*|\s*inline\s*|\s*", body) is not None


def _of_outside(directives: Sequence[Token], names: CppNames, defined: Defined) -> Iterator[Seen]:
    """What stands outside of functions."""
    for offset in names.uneven:
        yield offset, "branches of the preprocessor that open and close braces unevenly"
    starts = [token.start for token in directives]
    for first, last in names.heads:
        index = bisect.bisect_left(starts, first)
        if index < len(starts) and starts[index] < last:
            yield starts[index], "a directive within the head of a function"
    for name, offset in names.declared.items():
        if name not in defined.functions and name not in UNQUALIFIED:
            yield offset, f"{name[:60]} is declared, and the source does not define it"
        elif name not in defined.functions:
            yield offset, f"{name[:60]} is declared, which belongs to a library"
    for name in names.namespaces & ROOTS.keys():
        if name in ("std", "at", "torch", "c10", "py", "pybind11"):
            yield 0, f"namespace {name} is opened, which belongs to a library"
    for _, statement in names.globals:
        note = _of_global(statement)
        if note:
            yield statement[0].start, note


_ONLY_TYPES = frozenset(
    {"namespace", "using", "typedef", "static_assert", "template", "struct", "class", "enum", "union", "friend"}
)
_ON_DEVICE = frozenset({"__constant__", "__device__", "__managed__", "__shared__"})


def _of_global(statement: Sequence[Token]) -> str | None:
    """What is wrong with a variable outside of functions: what it keeps, or what runs when the library is loaded."""
    words = {token.text for token in statement[:12] if token.kind == "name"}
    if statement[0].text in _ONLY_TYPES or words & _ON_DEVICE or len(statement) < 2 or not words:
        return None
    if statement[0].text == "extern" and len(words) == 1:
        return None
    if words & {"constexpr", "Tensor"} or any(_HANDLE.fullmatch(word) for word in words):
        return None
    if "const" not in words:
        return "a variable outside of functions; pass what a call needs as an argument"
    if any(token.text == "(" for token in statement):
        return "a call outside of functions; compute values in the functions that use them"
    return None

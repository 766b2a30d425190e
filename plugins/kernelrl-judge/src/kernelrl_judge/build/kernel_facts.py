"""Kernels in the C++ inside a candidate: which there are, which are launched, and which `ModelNew.forward` can reach.

By names alone and on the side of reaching, like the reading of the Python around it
(`kernelrl_core.sources.reachability`): a function counts as called wherever its name stands in code that is reached.
Hidden are sources that a candidate built and its file does not show: texts made at run time, macros in flags, functions
that are bound from elsewhere.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kernelrl_core.api.evaluators import EmbeddedSource, Finding, KernelFact, Severity, SourceFacts
from kernelrl_core.api.sources import SourceIndex, parse_source
from kernelrl_judge.build.calls import InlineCall, SourceText, find_inline_calls
from kernelrl_judge.build.kernel_syntax import function_name
from kernelrl_judge.build.lexing import Item, Unreadable, items, text_of
from kernelrl_judge.protocol.limits import LIMITS

__all__ = ["call_facts", "extension_facts", "hidden_facts"]

_OTHER_WAYS = re.compile(
    r"\b(?:_?compile_kernel|RawKernel|RawModule|triton|ctypes|cffi|numba|\w*(?:nvrtc|hiprtc)\w*)\b", re.IGNORECASE
)
_MACRO_FLAG = re.compile(r"-D(\w+)=['\"]*([A-Za-z_]\w*)")


def hidden_facts(source: str, orders: Sequence[bytes], language: str) -> tuple[SourceFacts, tuple[Finding, ...]]:
    """Kernels and texts of the builds that cannot be read off the source, and what is wrong with them as such.

    Lines of what is found are those of its own text.

    Args:
        orders: what `runner.builds` sent, as the build service has accepted it.
        language: of the device code: `cuda`, `hip` or `cpp`.
    """
    calls = find_inline_calls(source)
    shown = {_content(call) for call in calls if not call.unread}
    texts = {piece.text for call in calls for piece in (*call.cpp_sources, *call.cuda_sources)}
    built = [_call(order) for order in orders]
    hidden = [call for call in built if _content(call) not in shown]
    pieces = [
        *(("cpp", text) for call in built if (text := _beside(call))),
        *(("cpp", piece.text) for call in hidden for piece in call.cpp_sources),
        *((language, piece.text) for call in hidden for piece in call.cuda_sources),
    ]
    new: dict[str, str] = {}
    for kind, text in pieces:
        if text not in texts:
            new.setdefault(text, kind)
    embedded: list[EmbeddedSource] = []
    left = most = LIMITS.hidden_characters
    for text, kind in new.items():
        if kept := text[: max(0, left)]:
            embedded.append(EmbeddedSource(kind, kept, 1))
        left -= len(text)
    beyond = max(0, -left)
    if beyond:
        what = f"{beyond} characters, beyond the first {most}, of texts made at run time were built unread"
        finding = Finding("hidden_source", Severity.SUSPECT, what, checker="judge")
        return SourceFacts(embedded=tuple(embedded), unread=what), (finding,)
    if not hidden:
        unread = "kernels that the source shows were not looked for again" if embedded else ""
        return SourceFacts(embedded=tuple(embedded), unread=unread), ()
    facts = call_facts(source, built, language)
    other = _OTHER_WAYS.search(source)
    unread = facts.unread or (f"kernels may be made through {other.group()}" if other else "")
    return SourceFacts(facts.kernels, tuple(embedded), unread), ()


def _call(order: bytes) -> InlineCall:
    asked: dict[str, Any] = json.loads(order)
    return InlineCall(
        name=asked["name"],
        cpp_sources=tuple(SourceText(text, 1) for text in asked["cpp_sources"]),
        cuda_sources=tuple(SourceText(text, 1) for text in asked["device_sources"]),
        functions=tuple((name, text) for name, text in asked["functions"]),
        cflags=tuple(asked["cflags"]),
        device_flags=tuple(asked["device_flags"]),
        ldflags=(),
        include_paths=(),
    )


def _beside(call: InlineCall) -> str:
    """What a build gets of C++ beside its sources, as C++: macros in flags, and functions of other namespaces."""
    flags = " ".join((*call.cflags, *call.device_flags))
    macros = [f"#define {name} {value}" for name, value in _MACRO_FLAG.findall(flags)]
    functions = [f"auto bound = {name};" for name, _ in call.functions or () if "::" in name]
    return "".join(f"{line}\n" for line in dict.fromkeys((*macros, *functions)))


def _content(call: InlineCall) -> tuple[tuple[str, ...], ...]:
    return (
        tuple(piece.text for piece in call.cpp_sources),
        tuple(piece.text for piece in call.cuda_sources),
        tuple(name for name, _ in call.functions or ()),
    )


_MODULE_DEFINITION = re.compile(
    r'\.\s*(?:def|impl)\s*\(\s*"(\w+)(?:\([^"]*)?"\s*,\s*(?:&?\s*(?:\w+\s*::\s*)*(\w+)\s*[,)])?'
)
_REGISTERING = {"PYBIND11_MODULE", "TORCH_LIBRARY", "TORCH_LIBRARY_FRAGMENT", "TORCH_LIBRARY_IMPL"}
_MODULE = "<module>"
_MACRO = re.compile(r"\s*#\s*define\s+(\w+)(?:\(([^)]*)\))?([\s\S]*)")
_MADE = re.compile(r"__global__[\s\S]{0,400}?\b(\w+)\s*\(")


def extension_facts(source: str, language: str) -> SourceFacts:
    """Kernels and embedded sources of a candidate.

    Args:
        language: `cuda` or `hip`, where kernels are `__global__` functions; `cpp`, where the bound functions are what
            counts as kernels.
    """
    tree = parse_source(source)
    if tree is None:
        return SourceFacts(unread="the Python cannot be parsed")
    calls = find_inline_calls(source)
    if not calls:
        return SourceFacts()
    embedded = [
        EmbeddedSource(kind, piece.text, piece.line)
        for call in calls
        for kind, pieces in (("cpp", call.cpp_sources), (language, call.cuda_sources))
        for piece in pieces
    ]
    facts = _of_calls(calls, language, _names(SourceIndex(tree).reached()), _names([tree]))
    return attrs.evolve(facts, embedded=tuple(embedded))


def call_facts(source: str, calls: Sequence[InlineCall], language: str) -> SourceFacts:
    """Kernels of extensions whose calls do not stand in the source as they were made.

    A source that computes what it has built may compute the names of what it calls: where none of an extension's
    functions is named in what `ModelNew.forward` can reach, all are taken to be called.

    Args:
        source: the candidate.
        language: see `extension_facts`.
    """
    tree = parse_source(source)
    reached = _names(SourceIndex(tree).reached()) if tree is not None else set()
    return _of_calls(calls, language, reached, reached, computed_names=True)


def _names(roots: Sequence[ast.AST]) -> set[str]:
    found = set()
    for node in (node for root in roots for node in ast.walk(root)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.add(name)
            # getattr(module, "name")
            case ast.Constant(value=str() as name) if name.isidentifier():
                found.add(name)
    return found


def _of_calls(
    calls: Sequence[InlineCall], language: str, reached: set[str], everything: set[str], *, computed_names: bool = False
) -> SourceFacts:
    kernels: dict[str, KernelFact] = {}
    unread = ""
    for call in calls:
        functions = _Functions(call)
        bound = functions.bound.keys()
        unknown = set(bound) if computed_names and not bound & reached else set()
        for kernel in functions.kernels_of(language, call.line, reached | unknown, everything | unknown):
            kernels.setdefault(kernel.name, kernel)
        unread = unread or functions.unread
    return SourceFacts(tuple(kernels.values()), unread=unread)


class _Functions:
    """Functions of the C++ sources of a call and the names they use."""

    def __init__(self, call: InlineCall) -> None:
        self.unread = ""
        """The first thing that may hide a kernel; empty for nothing."""
        self.bound: dict[str, str] = {}
        """Name in Python -> name in C++."""
        self._kernels: dict[str, int] = {}
        self._lines: dict[str, int] = {}
        self._bodies: dict[str, set[str]] = {}
        for piece in (*call.cpp_sources, *call.cuda_sources):
            try:
                for item in items(piece.text):
                    self._read(item, piece.line - 1)
            except Unreadable as why:
                self.unread = self.unread or f"the C++ that begins on line {piece.line}: {why}"
        self.bound |= {name: name for name, _ in call.functions or ()}
        undefined = [name for name, _ in call.functions or () if name not in self._bodies]
        if call.unread:
            self.unread = f"line {call.line}: {' and '.join(call.unread)} of load_inline cannot be read"
        elif undefined and not self.unread:
            self.unread = f"line {call.line}: functions names {undefined[0]!r}, which no source defines"

    def kernels_of(self, language: str, line: int, reached: set[str], everything: set[str]) -> Iterator[KernelFact]:
        """The kernels, and what some names in Python lead to."""
        called, used = ({name for python, name in self.bound.items() if python in by} for by in (reached, everything))
        if language == "cpp" and not self._kernels:
            # Bound in a way that was not read: any function may be.
            for name in self.bound.values():
                yield KernelFact(name, self._lines.get(name, line), name in used, name in called)
            return
        from_called, from_used = (self._named(names if self.bound else set(self._bodies)) for names in (called, used))
        for name, place in self._kernels.items():
            yield KernelFact(name, place, name in from_used, name in from_called)

    def _named(self, names: set[str]) -> set[str]:
        """What is named in functions that the given ones can reach, themselves included."""
        seen, found, waiting = set(), set(), [*names]
        while waiting:
            name = waiting.pop()
            if name in self._bodies and name not in seen:
                seen.add(name)
                found |= self._bodies[name]
                waiting += self._bodies[name]
        return found

    def _read(self, item: Item, offset: int) -> None:
        for child in item.children:
            self._read(child, offset)
        if item.kind == "directive":
            self._read_directive(text_of(item.tokens), item.line + offset)
        elif item.kind == "function":
            self._read_function(item, offset)
        elif item.kind != "scope":
            # A macro that makes functions is used like a declaration; what it names, anyone may call.
            self._bodies.setdefault(f"<line {item.line}>", set()).update(item.names())

    def _read_function(self, item: Item, offset: int) -> None:
        words, name = item.words, function_name(item)
        if _REGISTERING.intersection(words):
            # What is bound is not always a function by its name: a lambda, say, has what stands in it.
            found = _MODULE_DEFINITION.findall(text_of(item.tokens))
            self.bound |= {python: function or _MODULE for python, function in found}
            self._bodies.setdefault(_MODULE, set()).update(item.names())
        elif "__global__" in words:
            self._kernels[name] = item.line + offset
        else:
            self._lines[name] = item.line + offset
            self._bodies.setdefault(name, set()).update(item.names())

    def _read_directive(self, text: str, line: int) -> None:
        """A macro is what its text names, to those who use it."""
        macro = _MACRO.match(text)
        if macro is None:
            return
        name, parameters, meaning = macro[1], re.findall(r"\w+", macro[2] or ""), macro[3]
        self._bodies.setdefault(name, set()).update(re.findall(r"[A-Za-z_]\w*", meaning))
        if "__global__" not in meaning:
            return
        made = [] if "##" in meaning else [found for found in _MADE.findall(meaning) if found not in parameters]
        for found in made:
            self._kernels.setdefault(found, line)
        if not made:
            self.unread = self.unread or f"line {line}: the macro {name} makes kernels"

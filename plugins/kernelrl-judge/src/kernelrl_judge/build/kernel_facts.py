"""Kernels in the C++ inside a candidate: which there are, which are launched, and which `ModelNew.forward` can reach.

By names alone and on the side of reaching, like the reading of the Python around it
(`kernelrl_core.sources.reachability`): a function counts as called wherever its name stands in code that is reached.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

import attrs

from kernelrl_core.api.evaluators import EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.api.sources import SourceIndex, parse_source
from kernelrl_judge.build.calls import InlineCall, SourceText, find_inline_calls
from kernelrl_judge.build.kernel_syntax import function_name
from kernelrl_judge.build.lexing import Item, Unreadable, items, text_of

__all__ = ["call_facts", "extension_facts"]

_MODULE_DEFINITION = re.compile(r'\.\s*def\s*\(\s*"(\w+)"\s*,\s*(?:&?\s*(\w+)\s*[,)])?')
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
    index = SourceIndex(tree)
    facts = _of_calls(calls, language, _names(index.reached()), _names([tree]))
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


def _of_calls(
    calls: Sequence[InlineCall],
    language: str,
    reached: set[str],
    everything: set[str],
    *,
    computed_names: bool = False,
) -> SourceFacts:
    kernels: dict[str, KernelFact] = {}
    unread = ""
    for call in calls:
        functions = _read(call)
        bound = {name for name, _ in call.functions or ()} | {name for name, _ in functions.modules}
        unknown = bound if computed_names and not bound & reached else set()
        for kernel in _of_call(call, functions, language, reached | unknown, everything | unknown):
            kernels.setdefault(kernel.name, kernel)
        unread = unread or functions.unread
    return SourceFacts(tuple(kernels.values()), unread=unread)


def _names(nodes: Sequence[object]) -> set[str]:
    found = set()
    for root in nodes:
        if not isinstance(root, ast.AST):
            continue
        for node in ast.walk(root):
            if isinstance(node, ast.Name):
                found.add(node.id)
            elif isinstance(node, ast.Attribute):
                found.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                # getattr(module, "name")
                found.add(node.value)
    return found


def _read(call: InlineCall) -> _Functions:
    functions = _Functions()
    for pieces in (call.cpp_sources, call.cuda_sources):
        for piece in pieces:
            functions.read(piece)
    undefined = [name for name, _ in call.functions or () if name not in functions.bodies]
    if call.unread:
        functions.unread = f"line {call.line}: {' and '.join(call.unread)} of load_inline cannot be read"
    elif undefined and not functions.unread:
        functions.unread = f"line {call.line}: functions names {undefined[0]!r}, which no source defines"
    return functions


def _of_call(
    call: InlineCall, functions: _Functions, language: str, reached: set[str], everything: set[str]
) -> Iterator[KernelFact]:
    # Name in Python -> name in C++.
    bound = {**dict(functions.modules), **{name: name for name, _ in call.functions or ()}}
    called = {name for python, name in bound.items() if python in reached}
    used = {name for python, name in bound.items() if python in everything}
    if not bound:
        # Bound in a way that was not read: any function may be.
        called = used = set(functions.bodies)
    if language == "cpp" and not functions.kernels:
        for name in bound.values():
            yield KernelFact(name, functions.lines.get(name, call.line), name in used, name in called)
        return
    from_called, from_used = functions.closure(called), functions.closure(used)
    for name, line in functions.kernels.items():
        launched = functions.launched.get(name, set())
        yield KernelFact(name, line, bool(launched & from_used), bool(launched & from_called))


class _Functions:
    """Functions of some C++ sources and the names they use."""

    def __init__(self) -> None:
        self.kernels: dict[str, int] = {}
        self.lines: dict[str, int] = {}
        self.bodies: dict[str, set[str]] = {}
        self.launched: dict[str, set[str]] = {}
        """Kernel -> functions whose code names it."""
        self.modules: list[tuple[str, str]] = []
        self.unread = ""
        """The first thing that may hide a kernel; empty for nothing."""

    def read(self, piece: SourceText) -> None:
        try:
            found = items(piece.text)
        except Unreadable as why:
            self.unread = self.unread or f"the C++ that begins on line {piece.line}: {why}"
            return
        for item in found:
            self._read(item, piece.line - 1)
        for function, names in self.bodies.items():
            for kernel in set(self.kernels) & names:
                self.launched.setdefault(kernel, set()).add(function)

    def closure(self, names: set[str]) -> set[str]:
        """Functions that the given ones can reach, themselves included."""
        seen, waiting = set(), [name for name in names if name in self.bodies]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            waiting += [used for used in self.bodies[name] if used in self.bodies and used not in seen]
        return seen

    def _read(self, item: Item, offset: int) -> None:
        if item.kind == "scope":
            for child in item.children:
                self._read(child, offset)
            return
        text = text_of(item.tokens)
        if item.kind == "directive":
            self._read_directive(text, item.line + offset)
            return
        if item.kind != "function":
            # A macro that makes functions is used like a declaration; what it names, anyone may call.
            self.bodies.setdefault(f"<line {item.line}>", set()).update(item.names())
            return
        names = item.words
        if "PYBIND11_MODULE" in names:
            # What is bound is not always a function by its name: a lambda, say, has what stands in it.
            self.modules += [(python, name or _MODULE) for python, name in _MODULE_DEFINITION.findall(text)]
            self.bodies.setdefault(_MODULE, set()).update(item.names())
            return
        name = function_name(item)
        if "__global__" in names:
            self.kernels[name] = item.line + offset
        else:
            self.lines[name] = item.line + offset
            self.bodies.setdefault(name, set()).update(item.names())

    def _read_directive(self, text: str, line: int) -> None:
        """A macro is what its text names, to those who use it."""
        macro = _MACRO.match(text)
        if macro is None:
            return
        name, parameters, meaning = macro[1], re.findall(r"\w+", macro[2] or ""), macro[3]
        self.bodies.setdefault(name, set()).update(re.findall(r"[A-Za-z_]\w*", meaning))
        if "__global__" not in meaning:
            return
        made = [] if "##" in meaning else [found for found in _MADE.findall(meaning) if found not in parameters]
        for found in made:
            self.kernels.setdefault(found, line)
        if not made:
            self.unread = self.unread or f"line {line}: the macro {name} makes kernels"

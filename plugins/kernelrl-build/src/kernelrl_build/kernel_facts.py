"""Kernels in the C++ of a candidate: their names, which are launched, and which `ModelNew.forward` can reach.

Only names are read, and in doubt a kernel counts as reached, as in the Python of the candidate
(`kernelrl_sources.reachability`): a function counts as called wherever its name occurs in reached code. Hidden
sources are those that a candidate built and its file does not show: texts made at run time, macros in flags, and bound
functions of other namespaces.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kernelrl_build.calls import InlineCall, SourceText, find_inline_calls
from kernelrl_build.kernel_syntax import function_name
from kernelrl_build.lexing import Item, Unreadable, items, text_of
from kernelrl_build.limits import MAX_HIDDEN_CHARACTERS
from kernelrl_core.api.evaluators import EmbeddedSource, Finding, KernelFact, Severity, SourceFacts
from kernelrl_core.api.sources import SourceIndex, parse_source

__all__ = ["call_facts", "extension_facts", "hidden_facts"]

_OTHER_COMPILERS = re.compile(
    r"\b(?:_?compile_kernel|RawKernel|RawModule|triton|ctypes|cffi|numba|\w*(?:nvrtc|hiprtc)\w*)\b", re.IGNORECASE
)
_COMPUTING_NAMES = frozenset({"getattr", "vars", "__dict__", "attrgetter", "methodcaller"})
"""Names in Python through which a function may be called whose name is computed."""
_MACRO_FLAG = re.compile(r"-D(\w+)=['\"]*([A-Za-z_]\w*)")


def hidden_facts(source: str, requests: Sequence[bytes], language: str) -> tuple[SourceFacts, tuple[Finding, ...]]:
    """Kernels and texts of the builds that the source does not show, and findings about them.

    Lines of kernels are those of their own text.

    Args:
        source: of the candidate.
        requests: the requests of its builds, which `BuildService.build` accepted.
        language: of the device code: `cuda`, `hip` or `cpp`.
    """
    calls = find_inline_calls(source)
    shown = {_content(call) for call in calls if not call.unread}
    texts = {piece.text for call in calls for piece in (*call.cpp_sources, *call.cuda_sources)}
    built = [_call(request) for request in requests]
    hidden = [call for call in built if _content(call) not in shown]
    pieces = [
        *(("cpp", text) for call in built if (text := _code_of_arguments(call))),
        *(("cpp", piece.text) for call in hidden for piece in call.cpp_sources),
        *((language, piece.text) for call in hidden for piece in call.cuda_sources),
    ]
    new: dict[str, str] = {}
    for kind, text in pieces:
        if text not in texts:
            new.setdefault(text, kind)
    embedded: list[EmbeddedSource] = []
    free_characters = MAX_HIDDEN_CHARACTERS
    for text, kind in new.items():
        if kept := text[: max(0, free_characters)]:
            embedded.append(EmbeddedSource(kind, kept, 1))
        free_characters -= len(text)
    if free_characters < 0:
        unread = (
            f"{-free_characters} characters, beyond the first {MAX_HIDDEN_CHARACTERS}, of texts made at run time were "
            "built unread"
        )
        finding = Finding("hidden_source", Severity.SUSPECT, unread, checker="judge")
        return SourceFacts(embedded=tuple(embedded), unread=unread), (finding,)
    if not hidden:
        unread = "kernels that the source shows were not looked for again" if embedded else ""
        return SourceFacts(embedded=tuple(embedded), unread=unread), ()
    facts = call_facts(source, built, language)
    other = _OTHER_COMPILERS.search(source)
    unread = facts.unread or (f"kernels may be made through {other.group()}" if other else "")
    return SourceFacts(facts.kernels, tuple(embedded), unread), ()


def _call(requested: bytes) -> InlineCall:
    request: dict[str, Any] = json.loads(requested)
    return InlineCall(
        name=request["name"],
        cpp_sources=tuple(SourceText(text, 1) for text in request["cpp_sources"]),
        cuda_sources=tuple(SourceText(text, 1) for text in request["device_sources"]),
        functions=tuple((name, documentation) for name, documentation in request["functions"]),
        cflags=tuple(request["cflags"]),
        device_flags=tuple(request["device_flags"]),
        ldflags=(),
        include_paths=(),
    )


def _code_of_arguments(call: InlineCall) -> str:
    """C++ in the other arguments of a call, as C++ source: macros in flags, and functions of other namespaces."""
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
        language: `cuda` or `hip`, where kernels are `__global__` functions; `cpp`, where the bound functions count as
            kernels.
    """
    tree = parse_source(source)
    if tree is None:
        return SourceFacts(unread="the Python cannot be parsed")
    calls = find_inline_calls(source)
    if not calls:
        return SourceFacts()
    embedded: list[EmbeddedSource] = []
    for call in calls:
        embedded += [EmbeddedSource("cpp", piece.text, piece.line) for piece in call.cpp_sources]
        embedded += [EmbeddedSource(language, piece.text, piece.line) for piece in call.cuda_sources]
    if language != "cpp" and any("cuda_sources" in call.unread for call in calls):
        embedded += _kernel_texts(tree, language)
    everything = _names([tree])
    facts = _of_calls(calls, language, _names(SourceIndex(tree).reached()), everything)
    if not any(kernel.launched for kernel in facts.kernels) and everything & _COMPUTING_NAMES:
        facts = attrs.evolve(facts, unread=facts.unread or "names of functions may be computed")
    return attrs.evolve(facts, embedded=tuple(embedded))


def _kernel_texts(tree: ast.AST, language: str) -> list[EmbeddedSource]:
    """The texts with kernels in a source whose call of `load_inline` gets them by a variable."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if "__global__" in text:
                found.append(EmbeddedSource(language, text, node.lineno))
    return found


def call_facts(source: str, calls: Sequence[InlineCall], language: str) -> SourceFacts:
    """Kernels of extensions whose calls the source does not show.

    A source that computes the texts that it builds may also compute the names of the functions that it calls. If
    `ModelNew.forward` can reach no name of an extension's functions, all of them count as called.

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
        unread = unread or functions.unread or functions.unbound(language, call.line)
    return SourceFacts(tuple(kernels.values()), unread=unread)


class _Functions:
    """Functions of the C++ sources of a call and the names they use."""

    def __init__(self, call: InlineCall) -> None:
        self.unread = ""
        """The first reason why a kernel may be hidden; empty if there is none."""
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

    def unbound(self, language: str, line: int) -> str:
        """Why it is not known which functions Python can call; empty if it is, or if kernels are known without it."""
        if language != "cpp" or self.bound or self._kernels:
            return ""
        return f"line {line}: it is not known which functions Python gets"

    def kernels_of(self, language: str, line: int, reached: set[str], everything: set[str]) -> Iterator[KernelFact]:
        """The kernels, with the ones that names in Python lead to.

        Args:
            line: of the call.
            reached: names in the Python that `ModelNew.forward` can reach.
            everything: all names in the Python.
        """
        called, used = ({name for python, name in self.bound.items() if python in by} for by in (reached, everything))
        every_function = set(self._bodies)
        if language == "cpp" and not self._kernels:
            for name in self.bound.values():
                yield KernelFact(name, self._lines.get(name, line), name in used, name in called)
            return
        # Without bound functions, the way in which functions are bound was not understood: every one may be bound.
        from_called = self._named(called if self.bound else every_function)
        from_functions = self._named(every_function)
        for name, place in self._kernels.items():
            yield KernelFact(name, place, name in from_functions, name in from_called)

    def _named(self, names: set[str]) -> set[str]:
        """All names in the functions that the given functions can reach, themselves included."""
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
            # A macro that makes functions is used like a declaration. Any function may call the names in it.
            self._bodies.setdefault(f"<line {item.line}>", set()).update(item.names())

    def _read_function(self, item: Item, offset: int) -> None:
        words, name = item.words, function_name(item)
        if _REGISTERING.intersection(words):
            # The bound function may be a lambda; then the names inside it are called.
            found = _MODULE_DEFINITION.findall(text_of(item.tokens))
            self.bound |= {python: function or _MODULE for python, function in found}
            self._bodies.setdefault(_MODULE, set()).update(item.names())
        elif "__global__" in words:
            self._kernels[name] = item.line + offset
        else:
            self._lines[name] = item.line + offset
            self._bodies.setdefault(name, set()).update(item.names())

    def _read_directive(self, text: str, line: int) -> None:
        """A macro counts as a function that calls the names in its text."""
        macro = _MACRO.match(text)
        if macro is None:
            return
        name, parameters, meaning = macro[1], re.findall(r"\w+", macro[2] or ""), macro[3]
        self._bodies.setdefault(name, set()).update(re.findall(r"[A-Za-z_]\w*", meaning))
        if "__global__" not in meaning:
            if "##" in meaning:
                self.unread = self.unread or f"line {line}: the macro {name} makes names"
            return
        made = [] if "##" in meaning else [found for found in _MADE.findall(meaning) if found not in parameters]
        for found in made:
            self._kernels.setdefault(found, line)
        if not made:
            self.unread = self.unread or f"line {line}: the macro {name} makes kernels"

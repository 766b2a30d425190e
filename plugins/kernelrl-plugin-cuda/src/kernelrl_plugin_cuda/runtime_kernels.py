"""CUDA kernels in strings that a candidate compiles at run time: by NVRTC through torch, or as raw kernels of cupy.

The analysis uses names only and overestimates reachability, like `sources.reachability`. A kernel counts as launched
where code names a compiling function, the string that contains the kernel, and the kernel itself.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

import attrs

from kernelrl_core.api.backends import EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.api.sources import SourceIndex, parse_source, targets_of

__all__ = ["runtime_facts"]

_COMPILERS = {"_compile_kernel", "compile_kernel", "_nvrtc_compile", "RawKernel", "RawModule"}
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_GLOBAL = re.compile(r"\b__global__\b")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_ATTRIBUTES = {"__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__align__", "alignas", "__attribute__"}
_MAX_NAME_CHARACTERS = 200
"""Longer strings are sources, not names of kernels."""


def runtime_facts(source: str) -> SourceFacts:
    """Kernels and their sources; empty where the candidate names no function that compiles at run time."""
    tree = parse_source(source)
    if tree is None:
        return SourceFacts()
    compilers = _compilers(tree)
    everything = _Names.of([tree], set())
    if not compilers & everything.names:
        return SourceFacts()
    index = SourceIndex(tree)
    used = _Names.of([tree], _never_read(tree))
    reached = _Names.of(index.reached(), set())
    kernels: dict[str, KernelFact] = {}
    embedded = []
    for text, line in sorted(everything.sources.items(), key=lambda item: item[1]):
        found = list(_kernels(text, line))
        names = {name for name, _ in found}
        launched, from_forward = (code.launches(text, names, compilers) for code in (used, reached))
        for name, its_line in found:
            kernels.setdefault(name, KernelFact(name, its_line, name in launched, name in from_forward))
        embedded.append(EmbeddedSource("cuda", text, line))
    unread = "" if kernels else "no source of a kernel that is compiled at run time can be read"
    return SourceFacts(tuple(kernels.values()), tuple(embedded), unread if compilers & reached.names else "")


@attrs.frozen
class _Names:
    """The names and strings that some code contains."""

    names: set[str]
    """Names and attributes."""
    words: set[str]
    """Words in short strings, which may be names of kernels."""
    sources: dict[str, int]
    """Strings that define kernels, each with its first line."""

    @classmethod
    def of(cls, roots: Iterable[ast.AST], skipped: set[int]) -> _Names:
        names: set[str] = set()
        words: set[str] = set()
        sources: dict[str, int] = {}
        waiting, seen = list(roots), set(skipped)
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            waiting += ast.iter_child_nodes(node)
            if isinstance(node, ast.Name):
                names.add(node.id)
            elif isinstance(node, ast.Attribute):
                names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                if "__global__" in node.value:
                    sources.setdefault(node.value, node.lineno)
                elif len(node.value) <= _MAX_NAME_CHARACTERS:
                    words.update(re.findall(r"\w+", node.value))
        return cls(names, words, sources)

    def launches(self, text: str, kernels: set[str], compilers: set[str]) -> set[str]:
        """Kernels of a string that this code compiles."""
        if text not in self.sources or not compilers & self.names:
            return set()
        # A computed name cannot be read: it may be that of any kernel of the string.
        return kernels & self.words or kernels


def _compilers(tree: ast.Module) -> set[str]:
    """Names of the compiling functions, including their aliases in this file."""
    found = set(_COMPILERS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname for alias in node.names if alias.name in _COMPILERS and alias.asname}
    return found


def _never_read(tree: ast.Module) -> set[int]:
    """Ids of the values that are assigned only to names that are never read."""
    read = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
    }
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and not read & {name for target in node.targets for name in targets_of(target)}
    }


def _kernels(text: str, line: int) -> Iterator[tuple[str, int]]:
    """Name and line in the Python file of each kernel of a string."""
    code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") + " ", text)
    for start in _GLOBAL.finditer(code):
        for word in _CALLED.finditer(code, start.end()):
            if word[1] not in _ATTRIBUTES:
                yield word[1], line + code.count("\n", 0, start.start())
                break

"""Kernels in a candidate's strings that are compiled while it runs: by NVRTC through torch, or as raw kernels of cupy.

By names alone and on the side of reaching, like `sources.reachability`: a kernel counts as launched where code names a
function that compiles, the text that the kernel stands in, and the kernel itself.
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
"""Longer texts name no kernel: they are sources."""


def runtime_facts(source: str) -> SourceFacts:
    """Kernels and their sources; nothing where no function that compiles at run time is named."""
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
    """What some code names."""

    names: set[str]
    """Names and attributes."""
    words: set[str]
    """Words of short texts, which may name a kernel."""
    sources: dict[str, int]
    """Texts that define kernels, and the line where each begins."""

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
        """Those of the kernels of a text that this code compiles."""
        if text not in self.sources or not compilers & self.names:
            return set()
        # A name that is put together is not read: any kernel of the text may be meant.
        return kernels & self.words or kernels


def _compilers(tree: ast.Module) -> set[str]:
    """Names of the functions that compile, as the file imports them."""
    found = set(_COMPILERS)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {alias.asname for alias in node.names if alias.name in _COMPILERS and alias.asname}
    return found


def _never_read(tree: ast.Module) -> set[int]:
    """Values that are assigned to names which nothing reads."""
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
    """Name of each kernel of a text, and its line in the Python file."""
    code = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n") + " ", text)
    for start in _GLOBAL.finditer(code):
        for word in _CALLED.finditer(code, start.end()):
            if word[1] not in _ATTRIBUTES:
                yield word[1], line + code.count("\n", 0, start.start())
                break

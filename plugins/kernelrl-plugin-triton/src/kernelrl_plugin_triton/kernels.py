"""Triton kernels in a source: which exist, which are launched, and which `ModelNew.forward` can reach.

The analysis uses names only and overestimates reachability. A function counts as called wherever reachable code uses
its name. An attribute may be anything that is assigned to an attribute of that name. A launch of something that no name
resolves, such as a parameter, may be a launch of any kernel that the same code names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from kernelrl_core.api.backends import KernelFact, SourceFacts
from kernelrl_core.api.sources import MAX_SOURCE_CHARACTERS, SourceIndex, children, names_in, parse_source, walk

__all__ = ["find_kernels", "triton_facts"]

_MAX_PARTS = 3


def find_kernels(source: str) -> tuple[KernelFact, ...]:
    """Functions compiled by `triton.jit`, in source order; empty if the source does not parse."""
    return triton_facts(source).kernels


def triton_facts(source: str) -> SourceFacts:
    """Functions compiled by `triton.jit`, in source order, and a use of `triton.jit` that it cannot follow."""
    tree = parse_source(source) if len(source) <= MAX_SOURCE_CHARACTERS else None
    if tree is None:
        return SourceFacts(unread="the Python cannot be parsed")
    nodes = [*walk(tree)]
    jit_names = set(_jit_names(nodes))
    kernels, read = _compiled(nodes, jit_names)
    unread = next(
        (
            f"line {node.lineno}: this use of {ast.unparse(node)} is not supported"
            for node in nodes
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in read and _is_jit(node, jit_names)
        ),
        "",
    )
    if not kernels:
        return SourceFacts(unread=unread)
    index = SourceIndex(tree, nodes)
    scopes = _Scopes(index, set(kernels))
    launched = scopes.launched(None)
    reached = scopes.launched(index.reached(stop=kernels))
    # A kernel may call another one on the device, so the kernels that a launched kernel names count as launched.
    for found in (launched, reached):
        found |= scopes.called_by(found)
    facts = tuple(KernelFact(name, line, name in launched, name in reached) for name, line in kernels.items())
    return SourceFacts(facts, unread=unread)


def _compiled(nodes: Sequence[ast.AST], jit_names: set[str]) -> tuple[dict[str, int], set[int]]:
    """Name and line of each kernel, decorated or passed to `triton.jit`, and the ids of these uses of `triton.jit`."""
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    kernels: dict[str, int] = {}
    read: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.FunctionDef):
            for decorator in node.decorator_list:
                if _is_jit(decorator, jit_names):
                    kernels[node.name] = node.lineno
                    read.add(id(decorator.func if isinstance(decorator, ast.Call) else decorator))
        elif isinstance(node, ast.Call) and _is_jit(node.func, jit_names) and len(node.args) == 1:
            given = node.args[0]
            if isinstance(given, ast.Name) and given.id in functions:
                kernels.setdefault(given.id, functions[given.id].lineno)
                read.add(id(node.func))
    return kernels, read


def _jit_names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the dotted names of `triton.jit` in this file."""
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "triton" or (alias.name.startswith("triton.") and alias.asname is None):
                    yield f"{alias.asname or 'triton'}.jit"
                if alias.name == "triton.runtime" and alias.asname:
                    yield f"{alias.asname}.jit"
        elif isinstance(node, ast.ImportFrom) and node.module in ("triton", "triton.runtime", "triton.runtime.jit"):
            for alias in node.names:
                if alias.name == "jit":
                    yield alias.asname or "jit"


def _is_jit(decorator: ast.expr, names: set[str]) -> bool:
    """Whether an expression is `triton.jit` or a call of it."""
    node = decorator.func if isinstance(decorator, ast.Call) else decorator
    # An attribute of an attribute of a name at most: `triton.runtime.jit`.
    parts: list[str] = []
    while isinstance(node, ast.Attribute) and len(parts) < _MAX_PARTS:
        parts.insert(0, node.attr)
        node = node.value
    return isinstance(node, ast.Name) and ".".join([node.id, *parts]) in names


class _Scopes:
    """Resolves the names of a file to kernels."""

    def __init__(self, index: SourceIndex, kernels: set[str]) -> None:
        self._index = index
        self._kernels = kernels

    def launched(self, code: list[ast.AST] | None) -> set[str]:
        """Kernels that `code` launches; None: the whole file."""
        aliases = self._aliases()
        found: set[str] = set()
        parts = [self._index.tree] if code is None else code
        of_unknown = False
        seen: set[int] = set()
        for part in parts:
            for node in _unseen(part, seen):
                if isinstance(node, ast.Subscript):
                    found |= aliases.get(_last_name(node.value), set())
                elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "run":
                    found |= aliases.get(_last_name(node.func.value), set())
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                    of_unknown |= not aliases.get(_last_name(node.func.value))
        if of_unknown and not found:
            found = self._kernels & {name for part in parts for name in names_in(part)}
        return found

    def called_by(self, kernels: set[str]) -> set[str]:
        """Kernels whose names the given kernels use."""
        found: set[str] = set()
        waiting = list(kernels)
        while waiting:
            for node in self._index.bodies[waiting.pop()]:
                new = (set(names_in(node)) & self._kernels) - found - kernels
                found |= new
                waiting += new
        return found

    def _aliases(self) -> dict[str, set[str]]:
        """Name → kernels that it may refer to, through assignments of any depth."""
        assigned: dict[str, set[str]] = {}
        """Name → names to which an expression with it is assigned."""
        for name, bodies in self._index.bodies.items():
            for node in bodies if name not in self._kernels else ():
                if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    for used in names_in(node):
                        assigned.setdefault(used, set()).add(name)
        aliases: dict[str, set[str]] = {}
        for kernel in self._kernels:
            waiting = [kernel]
            while waiting:
                name = waiting.pop()
                if kernel not in aliases.setdefault(name, set()):
                    aliases[name].add(kernel)
                    waiting += assigned.get(name, ())
        return aliases


def _unseen(part: ast.AST, seen: set[int]) -> Iterator[ast.AST]:
    """The nodes of a part that are not in `seen`; adds them."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += children(node)


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""

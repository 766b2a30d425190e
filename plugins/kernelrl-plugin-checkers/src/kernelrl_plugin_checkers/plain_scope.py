"""What the names of a candidate's Python stand for, and which of them launching kernels needs."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Collection, Iterator

from kernelrl_plugin_checkers import plain_names as plain
from kernelrl_plugin_checkers.reading import Reading

__all__ = ["BUILDS", "FIRST_ARGUMENTS", "PYTHONS", "WORD", "Scope", "around", "ways"]

PYTHONS = frozenset(dir(builtins))
FIRST_ARGUMENTS = ("self", "cls", "ctx")
WORD = re.compile(r"[A-Za-z_]\w*")
BUILDS = ("torch.utils.cpp_extension.load", "torch.utils.cpp_extension.load_inline")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Scope:
    """A file, and what its own names are."""

    def __init__(self, reading: Reading, kernels: Collection[int]) -> None:
        self._reading = reading
        self._kernels = kernels
        self._bound: set[str] = set()
        """Attributes that the file gives to objects."""
        self._fields: set[str] = set()
        """What stands in the bodies of its classes."""
        self._methods: set[str] = set()
        self._classes: set[str] = set()
        self._functions = {node.name for node in reading.tree.body if isinstance(node, ast.FunctionDef)}
        self._names: set[str] = {*reading.modules}
        """Names that the file binds outside of parameters."""
        self._loaded: set[str] = set()
        self._pointers: set[str] = set()
        """Names of addresses, which may be given to launches alone."""
        self._extensions: set[str] = set()
        """Names of what is built."""
        for node in reading.nodes:
            self._note_node(node)
        self._bound |= self._fields
        self._free: set[int] | None = None
        self._words: frozenset[str] | None = None
        self._launched: set[int] = set()
        """Identities of arguments: `data_ptr()` is usual as one."""
        self._usual: set[int] = set()
        """Identities of nodes that are usual where they stand: `type(x)` in a comparison, say."""

    def _note_node(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            (self._loaded if isinstance(node.ctx, ast.Load) else self._names).add(node.id)
        elif isinstance(node, ast.Attribute):
            if not isinstance(node.ctx, ast.Load):
                self._bound.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            self._names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            self._names.add(node.name)
            self._classes.add(node.name)
            for part in node.body:
                if isinstance(part, _FUNCTIONS):
                    self._methods.add(part.name)
                for target in part.targets if isinstance(part, ast.Assign) else [getattr(part, "target", None)]:
                    if isinstance(target, ast.Name):
                        self._fields.add(target.id)
            self._fields |= self._methods
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Call | ast.IfExp):
            names = {target.id for target in node.targets if isinstance(target, ast.Name)}
            if any(map(_is_address, ways(node.value))):
                self._pointers |= names
            elif isinstance(node.value, ast.Call) and self._name_of(node.value.func) in BUILDS:
                self._extensions |= names

    def _name_of(self, node: ast.AST) -> str:
        """Dotted name of something imported, or empty."""
        name = self._reading.dotted(node)
        if "." in name:
            return name
        return name if isinstance(node, ast.Name) and name and node.id in self._reading.modules else ""

    def _imported(self, name: str) -> str:
        """What is wrong with a dotted name that is imported from a module, or empty text."""
        parts = name.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            offered = plain.MODULES.get(module)
            if offered is None:
                continue
            rest = parts[end:]
            if not rest:
                return ""
            if not offered:
                return "" if plain.is_open(module, ".".join(rest)) else f"{name} is no name of {module} for kernels"
            if module == "torch" and rest[0] == "ops":
                is_own = len(rest) < 2 or rest[1] in self._own_words()
                return "" if is_own else f"{name}: operators that no source of the file registers"
            if rest[0] not in offered:
                return f"{name} is not among the names of {module} that launching kernels needs"
            more = (part for part in rest[1:] if part not in plain.ATTRIBUTES and part not in plain.SPECIAL_NAMES)
            return next((f"{name}: attribute {part}" for part in more), "")
        return f"module {parts[0]}: use torch, triton, math and the standard types"

    def _attribute(self, name: str, *, of_self: bool = False) -> str:
        """What is wrong with reading an attribute of a value, or empty text."""
        if name.startswith("__") and name.endswith("__"):
            return "" if name in plain.SPECIAL_NAMES else f"attribute {name}"
        if name in plain.REFUSED or name in plain.OWN_PRIVATE:
            return f"attribute {name}: launching a kernel needs values, shapes, types and devices"
        if name in plain.ATTRIBUTES or name in self._fields:
            return ""
        if name.startswith("_") and not of_self:
            return f"private attribute {name}"
        if name in self._bound or name in self._own_words() or plain.DRIVER.fullmatch(name):
            return ""
        return f"attribute {name}, which neither the file nor a tensor is known to have"

    def _own_words(self) -> frozenset[str]:
        """Words in the texts of the file: what its C++ defines is called by them."""
        if self._words is None:
            self._words = frozenset(
                word
                for node in self._reading.nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
                for word in WORD.findall(node.value)
            )
        return self._words

    def _is_free(self, node: ast.Name) -> bool:
        """Whether no function around a name binds it."""
        if self._free is None:
            self._free = set(self._reading.free)
            for function in self._reading.nodes:
                if isinstance(function, _FUNCTIONS):
                    for part in around(function):
                        self._free |= {id(name) for name in self._reading.walk(part) if isinstance(name, ast.Name)}
        return id(node) in self._free

    def _is_missing(self, node: ast.Name) -> bool:
        """Whether nothing binds a name: a mistake, which ends the call."""
        return node.id not in self._names and node.id not in PYTHONS and self._is_free(node)


def around(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Decorators and annotations, which are evaluated where the function stands."""
    yield from function.decorator_list
    given = function.args
    every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
    yield from (item.annotation for item in every if item is not None and item.annotation is not None)
    if function.returns is not None:
        yield function.returns


def ways(node: ast.expr) -> list[ast.expr]:
    """What an expression may come to, by a condition."""
    return [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]


def _is_address(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr"

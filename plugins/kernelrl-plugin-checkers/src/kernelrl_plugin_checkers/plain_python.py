"""The Python around kernels: what launches them is plain, and nothing else is taken for granted.

An allowlist. Each construct, module, attribute and builtin that an honest candidate needs is named in `plain_names`;
the rest is told. What a kernel of Triton does in its body is for `triton_bodies` to say, and whether a library computes
for `python_compute`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kernelrl_core.api.sources import children
from kernelrl_plugin_checkers import plain_names as plain
from kernelrl_plugin_checkers.plain_calls import CALLED_ONLY, Calls, Note
from kernelrl_plugin_checkers.plain_scope import BUILDS, FIRST_ARGUMENTS, PYTHONS, around
from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["unusual_python"]

_RULE = "unusual_python"
_ENOUGH = 8
"""Lines with something unusual, after which reading ends."""
_NEVER: dict[type[ast.AST], str] = {
    ast.AsyncFunctionDef: "an async function",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield from",
    ast.Nonlocal: "nonlocal",
    ast.MatchClass: "a class in a match statement",
}
_SPECIAL_FIELD = re.compile(r"\{\w*[.\[][\w.\[\]]*__")


def unusual_python(reading: Reading, kernels: Collection[int]) -> Iterator[Breach]:
    """Constructs outside of kernels that are not among those that launching kernels needs.

    Args:
        kernels: identities (`id`) of the functions whose bodies Triton compiles.
    """
    lines: set[int | None] = set()
    for node, note in _File(reading, kernels).notes():
        line = getattr(node, "lineno", None)
        yield _RULE, line, note
        lines.add(line)
        if len(lines) >= _ENOUGH:
            return


class _File(Calls):
    """Looks at all that stands in a file."""

    def notes(self) -> Iterator[Note]:
        yield from self._run_at_import()
        waiting: list[ast.AST] = list(reversed(self._reading.tree.body))
        while waiting:
            node = waiting.pop()
            self._reading.spend()
            look = _LOOKS.get(type(node))
            below: list[ast.AST] | None = None
            if type(node) in _NEVER:
                yield node, f"{_NEVER[type(node)]}: plain functions are enough"
            elif look is not None:
                yield from look(self, node)
                below = self._left_to_look_at(node)
            waiting += reversed(children(node) if below is None else below)

    def _run_at_import(self) -> Iterator[Note]:
        """Calls of an extension in the statements of the file itself."""
        if not self._extensions:
            return
        for statement in self._reading.tree.body:
            if isinstance(statement, ast.ClassDef | ast.FunctionDef):
                continue
            for node in self._reading.walk(statement):
                function = node.func if isinstance(node, ast.Call) else None
                root = function.value if isinstance(function, ast.Attribute) else None
                if isinstance(root, ast.Name) and root.id in self._extensions:
                    yield node, "a function of the extension that runs at import: call it from ModelNew"

    def _left_to_look_at(self, node: ast.AST) -> list[ast.AST] | None:
        """What of a node is still to be looked at; None for all of it."""
        if isinstance(node, ast.FunctionDef) and id(node) in self._kernels:
            return list(around(node))
        if isinstance(node, ast.Attribute):
            root: ast.AST = node
            while isinstance(root, ast.Attribute):
                root = root.value
            return [] if isinstance(root, ast.Name) and self._name_of(node) else [root]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr"):
            return list(node.args[1:]) if self._name_of(node.args[0]) in plain.MODULES else None
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            # `nn = torch.nn`: another name, which is followed.
            name = self._name_of(node.value) if isinstance(node.value, ast.Attribute | ast.Name) else ""
            if name in plain.MODULES and len(self._reading.index.bodies[node.targets[0].id]) == 1:
                return []
        return None

    # Expressions

    def name(self, node: ast.Name) -> Iterator[Note]:
        if node.id in self._pointers and isinstance(node.ctx, ast.Load) and id(node) not in self._launched:
            yield node, f"{node.id}, an address that is kept: give it straight to the launch"
        if (
            node.id in CALLED_ONLY
            and id(node) not in self._usual
            and isinstance(node.ctx, ast.Load)
            and self._is_free(node)
        ):
            yield node, f"{node.id} as a value: call it"
        if not isinstance(node.ctx, ast.Load):
            if node.id.startswith("__") and node.id.endswith("__") and node.id not in plain.SPECIAL_NAMES:
                yield node, f"{node.id} is Python's own to set"
        elif node.id in self._reading.modules:
            name = self._reading.modules[node.id]
            if name in plain.MODULES and self._is_free(node):
                yield node, f"the module {name} as a value: name what is needed of it"
        elif (node.id in PYTHONS or node.id.startswith("__")) and node.id not in plain.BUILTINS and self._is_free(node):
            yield node, f"{node.id}: launching a kernel does not need it"

    def attribute(self, node: ast.Attribute) -> Iterator[Note]:
        name = self._name_of(node)
        self._usual.add(id(node.value))
        if not isinstance(node.ctx, ast.Load):
            note = self._stored(node, name)
        elif name.startswith("os.environ"):
            note = "" if id(node) in self._usual else "os.environ as a value: read a setting of the build by its name"
        elif name:
            note = self._imported(name) or (f"the module {name} as a value" if name in plain.MODULES else "")
        else:
            note = self._chain(node)
        if note:
            yield node, note

    def _chain(self, node: ast.Attribute) -> str:
        inner: ast.expr = node
        while isinstance(inner, ast.Attribute):
            root = inner.value
            if isinstance(root, ast.Name) and self._is_missing(root):
                return ""
            if not self._is_usual_special(inner):
                is_own = isinstance(root, ast.Name) and (root.id in FIRST_ARGUMENTS or root.id in self._classes)
                note = self._attribute(inner.attr, of_self=is_own)
                if not note and isinstance(root, ast.Name) and root.id in self._functions and self._is_free(root):
                    note = self._of_function(root.id, inner.attr)
                if note:
                    return note
            inner = root
        return ""

    def _is_usual_special(self, node: ast.Attribute) -> bool:
        if node.attr == "__init__":
            root = node.value
            if isinstance(root, ast.Call):
                return isinstance(root.func, ast.Name) and root.func.id == "super"
            name = root.id if isinstance(root, ast.Name) else ""
            return name in self._classes or self._name_of(root).startswith("torch.nn.")
        return node.attr == "__class__" and isinstance(node.value, ast.Name) and node.value.id == "self"

    def _of_function(self, function: str, attribute: str) -> str:
        if attribute in ("best_config", "fn", "warmup", "__name__", "__doc__", "launch"):
            return ""
        return f"attribute {attribute} of the function {function}"

    def constant(self, node: ast.Constant) -> Iterator[Note]:
        if isinstance(node.value, bytes) and len(node.value) > 64:
            yield node, "bytes in the source: write kernels as text"
        elif isinstance(node.value, str) and "__" in node.value and _SPECIAL_FIELD.search(node.value):
            yield node, "a special attribute in a text to be formatted"

    # Statements

    def imports(self, node: ast.Import) -> Iterator[Note]:
        for alias in node.names:
            note = self._imported(alias.name)
            if note and (alias.asname or alias.name.partition(".")[0]) in self._loaded:
                yield node, f"import of {note}"

    def imports_from(self, node: ast.ImportFrom) -> Iterator[Note]:
        if node.level or node.module is None:
            yield node, "a relative import: a candidate is one file"
            return
        for alias in node.names:
            note = (
                f"* of {node.module}: name what is needed"
                if alias.name == "*"
                else self._imported(f"{node.module}.{alias.name}")
            )
            if note:
                yield node, f"import of {note}"
                return

    def function(self, node: ast.FunctionDef) -> Iterator[Note]:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            is_kept = isinstance(default, ast.List | ast.Dict | ast.Set | ast.Call)
            if is_kept and node.name == "forward":
                yield node, f"a default of {node.name} that lasts from call to call: write None"

    def class_(self, node: ast.ClassDef) -> Iterator[Note]:
        for base in node.bases:
            note = self._base(base)
            if note:
                yield node, f"class {node.name}: {note}"
        for item in node.keywords:
            yield node, f"class {node.name} with {item.arg or 'keywords'}: derive from nn.Module"
        for part in node.body:
            if isinstance(part, ast.FunctionDef):
                yield from self._method(part, node)

    def _base(self, base: ast.expr) -> str:
        if isinstance(base, ast.Name) and (base.id in self._classes or base.id == "object"):
            return ""
        name = self._name_of(base)
        is_layer = name.startswith("torch.nn.") and name.rpartition(".")[2] not in ("Parameter", "Buffer")
        if is_layer or name in _BASES:
            return self._imported(name)
        return f"base {ast.unparse(base)[:60]}: derive from nn.Module or torch.autograd.Function"

    def _method(self, node: ast.FunctionDef, of: ast.ClassDef) -> Iterator[Note]:
        name = node.name
        if name.startswith("__") and name.endswith("__"):
            is_usual = name == "__repr__" if of.bases else name == "__call__"
            if name not in plain.SPECIAL_METHODS and not is_usual:
                yield node, f"special method {name} of {of.name}: call a plain method"
        elif name in plain.OWN_PRIVATE or (name in plain.METHODS_OF_OTHERS and of.bases):
            yield node, f"{of.name} has its own {name}, which others call"

    def attempt(self, node: ast.Try) -> Iterator[Note]:
        for handler in node.handlers:
            for part in handler.body if handler.name else ():
                for place in self._decisions(part):
                    if any(
                        isinstance(below, ast.Name) and below.id == handler.name for below in self._reading.walk(place)
                    ):
                        yield place, "a decision by what an exception says: report it or raise it again"

    def _decisions(self, part: ast.AST) -> Iterator[ast.AST]:
        """What decides or is kept, within a statement."""
        for node in self._reading.walk(part):
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                yield node.test
            elif isinstance(node, ast.Compare):
                yield node
            elif isinstance(node, ast.Assign) and not isinstance(node.value, ast.JoinedStr):
                yield node.value

    def loop(self, node: ast.For | ast.While) -> Iterator[Note]:
        for below in self._reading.walk(node):
            if isinstance(below, ast.Call) and self._name_of(below.func) in BUILDS:
                yield below, "a build in a loop: build each extension once"
                return

    def global_(self, node: ast.Global) -> Iterator[Note]:
        for name in node.names:
            if name in PYTHONS or name in self._reading.modules:
                yield node, f"global {name}"

    def delete(self, node: ast.Delete) -> Iterator[Note]:
        for target in node.targets:
            is_own = isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name)
            if isinstance(target, ast.Attribute) and not (is_own and ast.unparse(target.value) == "self"):
                yield node, "del of an attribute"

    def _stored(self, node: ast.Attribute, name: str) -> str:
        """What is wrong with changing an attribute, or empty text."""
        if name:
            if name.startswith("torch.backends."):
                return self._imported(name)
            return f"assignment to {name}: what is imported is not the candidate's to change"
        attribute, root = node.attr, node.value
        if isinstance(root, ast.Name) and root.id in self._classes | {"cls"}:
            is_method = attribute in self._methods or attribute in plain.METHODS_OF_OTHERS | plain.OWN_PRIVATE
            return f"assignment to {root.id}.{attribute}" if is_method or attribute.startswith("__") else ""
        if attribute.startswith("__") or attribute in plain.OWN_PRIVATE or attribute in plain.REFUSED:
            return f"assignment to attribute {attribute}"
        if isinstance(root, ast.Name) and root.id in FIRST_ARGUMENTS:
            is_method = attribute in plain.METHODS_OF_OTHERS | self._methods | {"forward", "src", "_src"}
            return f"assignment to {root.id}.{attribute}: write a method" if is_method else ""
        of_parameter = attribute == "data" and isinstance(root, ast.Attribute) and root.attr in ("weight", "bias")
        if attribute in plain.STORED_ANYWHERE or of_parameter:
            return ""
        while isinstance(root, ast.Attribute | ast.Subscript):
            root = root.value
        if isinstance(root, ast.Name) and root.id == "self" and attribute in plain.STORED_BELOW_SELF:
            return ""
        return f"assignment to attribute {attribute} of another object: keep it in self or in a variable"


_BASES = (
    "torch.autograd.Function",
    "torch.autograd.function.Function",
    "typing.NamedTuple",
    "enum.Enum",
    "enum.IntEnum",
)
_LOOKS: dict[type[ast.AST], Callable[[_File, Any], Iterator[Note]]] = {
    ast.Name: _File.name,
    ast.Attribute: _File.attribute,
    ast.Constant: _File.constant,
    ast.Call: _File.call,
    ast.BinOp: _File.operation,
    ast.Import: _File.imports,
    ast.ImportFrom: _File.imports_from,
    ast.FunctionDef: _File.function,
    ast.ClassDef: _File.class_,
    ast.Global: _File.global_,
    ast.Delete: _File.delete,
    ast.Subscript: _File.subscript,
    ast.Compare: _File.comparison,
    ast.FormattedValue: _File.formatted,
    ast.Assert: _File.assertion,
    ast.Try: _File.attempt,
    ast.For: _File.loop,
    ast.While: _File.loop,
    ast.Assign: _File.assignment,
}

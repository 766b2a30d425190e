"""Calls and lookups around kernels that are usual in some forms only: `getattr`, `type`, `data_ptr`, `os.environ`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from kernelrl_plugin_checkers import plain_names as plain
from kernelrl_plugin_checkers.plain_scope import BUILDS, FIRST_ARGUMENTS, PYTHONS, WORD, Scope, ways

__all__ = ["CALLED_ONLY", "Calls", "Note"]

Note = tuple[ast.AST, str]
"""Where something unusual stands, what it is, and what to write instead."""


class Calls(Scope):
    """Looks at calls, subscripts and comparisons."""

    def call(self, node: ast.Call) -> Iterator[Note]:
        self._note_addresses(node)
        function = node.func
        name = function.id if isinstance(function, ast.Name) else ""
        if (
            isinstance(function, ast.Name)
            and name in CALLED_ONLY
            and name not in self._reading.modules
            and self._is_free(function)
        ):
            self._usual.add(id(function))
            note = CALLED_ONLY[name](self, node)
            if note:
                yield node, note
            return
        if isinstance(function, ast.Attribute) and function.attr == "data_ptr":
            if id(node) not in self._launched:
                yield node, "an address that is kept: give data_ptr() straight to the launch"
        else:
            name = self._name_of(function)
            if name == "os.makedirs" and not _exists_ok(node):
                yield node, "os.makedirs without exist_ok=True tells what was there before"
            elif name == "warnings.filterwarnings" and not (
                node.args and self._reading.folded(node.args[0]) == "ignore"
            ):
                yield node, "warnings.filterwarnings that does not ignore"
            elif name in BUILDS and not all(map(self._is_plain_name, node.keywords)):
                yield node, "an extension whose name is no plain word"
            elif name == "importlib.import_module":
                if id(node) not in self._usual or not node.args or self._reading.folded(node.args[0]) is None:
                    yield node, "a module by its name: import it"
            elif name in ("os.environ.get", "os.environ.setdefault") and node.args:
                self._usual.add(id(function))
                value = node.args[1] if name.endswith("setdefault") and len(node.args) > 1 else None
                yield from self._setting(node, node.args[0], value)

    def _is_plain_name(self, given: ast.keyword) -> bool:
        text = self._reading.folded(given.value) if given.arg == "name" else None
        return text is None or WORD.fullmatch(text) is not None

    def _note_addresses(self, node: ast.Call) -> None:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in plain.CONTAINER_METHODS:
            return
        if isinstance(function, ast.Name) and function.id in PYTHONS:
            return
        waiting: list[ast.AST] = [*node.args, *(item.value for item in node.keywords)]
        while waiting:
            item = waiting.pop()
            self._reading.spend()
            if isinstance(item, ast.Tuple | ast.List):
                waiting += item.elts
            elif isinstance(item, ast.BinOp):
                waiting += [item.left, item.right]
            elif isinstance(item, ast.IfExp):
                waiting += ways(item)
            else:
                self._launched.add(id(item))

    def by_name(self, node: ast.Call) -> str:
        """`getattr` and `hasattr`."""
        if len(node.args) < 2:
            return ""
        name = self._name_of(node) if isinstance(node.func, ast.Name) and node.func.id == "getattr" else ""
        if name:
            return self._imported(name)
        attribute = self._reading.folded(node.args[1])
        root = node.args[0]
        is_own = isinstance(root, ast.Name) and (root.id in FIRST_ARGUMENTS or root.id in self._classes)
        if attribute is None:
            prefix = _prefix(node.args[1]) if is_own else ""
            known = plain.REFUSED | plain.OWN_PRIVATE
            if prefix and not prefix.startswith("_") and not any(word.startswith(prefix) for word in known):
                return ""
            return "an attribute with a computed name: write it out"
        name = self._name_of(root)
        is_literal = isinstance(node.args[1], ast.Constant)
        is_read = isinstance(node.func, ast.Name) and node.func.id == "getattr" and not is_own
        if is_read and (not is_literal or len(node.args) == 2 or attribute in plain.OF_TENSORS):
            return f"attribute {attribute} behind getattr: write it out"
        if name in plain.MODULES:
            # Whether a version of a library has something.
            is_told = attribute.startswith("_") and self._imported(f"{name}.{attribute}")
            return f"attribute {attribute} of {name}" if is_told else self._imported(name)
        return self._attribute(attribute, of_self=is_own)

    def next_of(self, node: ast.Call) -> str:
        of = node.args[0] if node.args else None
        while isinstance(of, ast.Call) and isinstance(of.func, ast.Name) and of.func.id == "iter" and of.args:
            of = of.args[0]
        is_usual = isinstance(of, ast.GeneratorExp) or (
            isinstance(of, ast.Call)
            and isinstance(of.func, ast.Attribute)
            and of.func.attr in ("parameters", "buffers", "values", "keys")
        )
        return "" if is_usual else "next of what counts calls"

    def type_of(self, node: ast.Call) -> str:
        if len(node.args) != 1 or node.keywords:
            return "a class made by type"
        return "" if id(node) in self._usual else "type as a value: ask isinstance"

    def printed(self, node: ast.Call) -> str:
        return "print to a file" if any(item.arg in ("file", None) for item in node.keywords) else ""

    def subscript(self, node: ast.Subscript) -> Iterator[Note]:
        if self._reading.dotted(node.value) == "os.environ":
            self._usual.add(id(node.value))
            if isinstance(node.ctx, ast.Load):
                yield from self._setting(node, node.slice, None)
            elif id(node) not in self._usual:
                yield node, "a setting that is not assigned"

    def comparison(self, node: ast.Compare) -> Iterator[Note]:
        every = [node.left, *node.comparators]
        self._usual |= {id(item) for item in every if isinstance(item, ast.Call)}
        if self._reading.dotted(node.comparators[-1]) == "os.environ":
            self._usual.add(id(node.comparators[-1]))
            yield from self._setting(node, node.left, None)

    def assertion(self, node: ast.Assert) -> Iterator[Note]:
        self._launched |= {id(below) for below in self._reading.walk(node.test)}
        yield from ()

    def formatted(self, node: ast.FormattedValue) -> Iterator[Note]:
        self._usual.add(id(node.value))
        yield from ()

    def assignment(self, node: ast.Assign) -> Iterator[Note]:
        if isinstance(node.value, ast.Call) and all(
            isinstance(target, ast.Name) and target.id not in self._loaded for target in node.targets
        ):
            # Whether something is installed.
            self._usual.add(id(node.value))
        for target in node.targets:
            if isinstance(target, ast.Name):
                self._launched |= {id(way) for way in ways(node.value)}
            if isinstance(target, ast.Subscript) and self._reading.dotted(target.value) == "os.environ":
                self._usual.add(id(target))
                yield from self._setting(node, target.slice, node.value)

    def _setting(self, node: ast.AST, key: ast.expr, value: ast.expr | None) -> Iterator[Note]:
        """A variable of the environment that is read, or that gets a value."""
        name = self._reading.folded(key) or ""
        text = self._reading.folded(value) or "" if value is not None else ""
        if not plain.ENVIRONMENT.fullmatch(name):
            yield node, f"the variable {name or 'with a computed name'} of the environment is no setting of a build"
        elif value is not None and name in plain.TOOLS and not plain.TOOLS[name].fullmatch(text):
            yield node, f"another value of {name}: builds take the machine's own tools"

    def operation(self, node: ast.BinOp) -> Iterator[Note]:
        # Whether memory is aligned.
        if isinstance(node.op, ast.Mod | ast.BitAnd):
            self._launched.add(id(node.left))
        yield from ()


CALLED_ONLY: dict[str, Callable[[Calls, ast.Call], str]] = {
    "getattr": Calls.by_name,
    "hasattr": Calls.by_name,
    "next": Calls.next_of,
    "type": Calls.type_of,
    "print": Calls.printed,
}


def _prefix(node: ast.AST) -> str:
    """Constant text that a computed text begins with."""
    if isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.Constant):
        return str(node.values[0].value)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and isinstance(node.left, ast.Constant):
        return str(node.left.value)
    return ""


def _exists_ok(node: ast.Call) -> bool:
    return any(
        item.arg == "exist_ok" and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in node.keywords
    )

"""What the bodies of Triton's kernels name and call: no more than Triton compiles.

Triton's interpreter runs a body as Python, where a call of another library computes as well as a kernel does. On a
device such a body is not compiled at all. What cannot be known here, such as a global that a call has made, is let
pass: the interpreter of the backend looks at its value.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator

from kernelrl_core.api.sources import children, free_names, targets_of, walk
from kernelrl_plugin_checkers.reading import Breach, Reading
from kernelrl_plugin_checkers.triton_names import BUILTINS, is_compiled, is_constant_of, wrong_attribute

__all__ = ["unfit_bodies"]

_JIT = ("triton.jit", "triton.runtime.jit", "triton.runtime.jit.jit")
_CONSTANT_FUNCTION = "triton.constexpr_function"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NOT_COMPILED = (ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.ClassDef, ast.Yield, ast.YieldFrom)
_CHANGEABLE = ("vars", "globals", "locals", "dict", "list", "set")
_NOT_RUN = frozenset({"decorator_list", "annotation", "returns"})
_MAX_DEPTH = 8
_PYTHONS = frozenset(dir(builtins))

_Scope = dict[str, list[ast.AST | str]]
"""Name -> what it stands for: values assigned to it, functions, classes, and dotted names of imports."""


def unfit_bodies(reading: Reading, seen: set[int] | None = None) -> Iterator[Breach]:
    """What kernels, and functions that they call, name or call although Triton would not compile it.

    Args:
        seen: gets the identities (`id`) of the functions that were looked at.
    """
    if any(name.partition(".")[0] == "triton" for name in reading.modules.values()):
        file = _File(reading, set() if seen is None else seen)
        while file.waiting:
            function, scopes = file.waiting.pop()
            yield from _Body(file, function, scopes).breaches()


class _File:
    """The functions of a file, those that the interpreter runs, and the scopes that they stand in."""

    def __init__(self, reading: Reading, seen: set[int]) -> None:
        self.reading = reading
        self.waiting: list[tuple[ast.AST, list[_Scope]]] = []
        """Functions that are still to be looked at, with the scopes around them from the outermost."""
        self._seen = seen
        self._around: dict[int, list[ast.AST]] | None = None
        self._compiled: dict[tuple[str, bool], bool] = {}
        self._top = {id(statement) for statement in reading.tree.body}
        module = self._module = _definitions(reading, reading.tree.body)
        functions = [node for node in reading.nodes if isinstance(node, ast.FunctionDef)]
        for function in functions:
            names = {name for item in function.body if isinstance(item, ast.Global) for name in item.names}
            for name, values in _definitions(reading, function.body).items() if names else ():
                if name in names:
                    module.setdefault(name, []).extend(values)
        given = {
            node.args[0].id
            for node in reading.nodes
            if isinstance(node, ast.Call)
            and len(node.args) == 1
            and isinstance(node.args[0], ast.Name)
            and reading.dotted(node.func) in _JIT
        }
        for function in functions:
            if function.name in given or self.is_decorated(function, _JIT):
                self.look_at(function)

    def look_at(self, function: ast.AST) -> None:
        """Have a function looked at, once."""
        if id(function) not in self._seen:
            self._seen.add(id(function))
            self.waiting.append((function, self._scopes_of(function)))

    def is_decorated(self, function: ast.AST, names: tuple[str, ...]) -> bool:
        """Whether one of the decorators has one of the dotted names."""
        return isinstance(function, ast.FunctionDef) and any(
            self.reading.dotted(item.func if isinstance(item, ast.Call) else item) in names
            for item in function.decorator_list
        )

    def is_at_top(self, function: ast.AST) -> bool:
        """Whether a function stands in the file itself, in no other and in no class."""
        return id(function) in self._top

    def is_compiled(self, name: str, *, is_called: bool) -> bool:
        """See `triton_names.is_compiled`."""
        key = (name, is_called)
        if key not in self._compiled:
            self._compiled[key] = is_compiled(name, is_called=is_called)
        return self._compiled[key]

    def _scopes_of(self, function: ast.AST) -> list[_Scope]:
        """The scopes around a function, from the outermost."""
        if self.is_at_top(function):
            return [self._module]
        if self._around is None:
            self._around = self._functions_around()
        return [self._module, *(self._own_scope(around) for around in self._around[id(function)])]

    def _own_scope(self, function: ast.AST) -> _Scope:
        body = getattr(function, "body", None)
        own = _definitions(self.reading, body) if isinstance(body, list) else {}
        return {**{name: [] for name in _parameters(function)}, **own}

    def _functions_around(self) -> dict[int, list[ast.AST]]:
        """The functions around each function. The body of a class is no scope."""
        found: dict[int, list[ast.AST]] = {}
        waiting: list[tuple[ast.AST, list[ast.AST]]] = [(self.reading.tree, [])]
        while waiting:
            node, around = waiting.pop()
            self.reading.spend()
            if isinstance(node, _FUNCTIONS):
                found[id(node)] = around
                around = [*around, node]
            waiting += [(below, around) for below in children(node)]
        return found


class _Body:
    """A function that Triton's interpreter runs."""

    def __init__(self, file: _File, function: ast.AST, scopes: list[_Scope]) -> None:
        self._file = file
        self._scopes = scopes
        self._nodes = list(_run_nodes(file.reading, function))
        self._parameters = _parameters(function)
        # What is bound around a function at the top is free in it.
        is_at_top = file.is_at_top(function)
        self._free = file.reading.free if is_at_top else free_names(function, file.reading.spend)
        self._constants = _constant_parameters(function) | {
            name
            for node in self._nodes
            if isinstance(node, ast.For) and _is_static_range(node.iter)
            for name in targets_of(node.target)
        }
        # Triton calls it while it compiles.
        self._is_constant_function = file.is_decorated(function, (_CONSTANT_FUNCTION,))

    def breaches(self) -> Iterator[Breach]:
        called: dict[int, ast.Call] = {}
        seen: set[int] = set()
        for node in self._nodes:
            if isinstance(node, ast.Call):
                called[id(node.func)] = node
            if id(node) in seen or not isinstance(node, ast.expr | ast.stmt):
                continue
            note = ""
            if isinstance(node, _NOT_COMPILED):
                note = f"{type(node).__name__.lower()} in a kernel"
            elif isinstance(node, ast.Call):
                note = self._by_name(node)
            elif isinstance(node, ast.Attribute):
                root, parts, passed = _chain(node)
                if id(root) in self._free and isinstance(root, ast.Name):
                    seen |= passed
                    note = self._of_global(root.id, parts, called.get(id(node)), self._scopes)
                else:
                    of_parameter = isinstance(root, ast.Name) and root.id in self._parameters
                    note = wrong_attribute(node.attr, is_called=id(node) in called and not of_parameter)
            elif isinstance(node, ast.Name) and id(node) in self._free:
                note = self._of_global(node.id, [], called.get(id(node)), self._scopes)
            if note:
                yield "python_in_kernel", node.lineno, note

    def _of_global(
        self, name: str, parts: list[str], call: ast.Call | None, scopes: list[_Scope], depth: int = 0
    ) -> str:
        """What is wrong with a name from outside of the function and attributes of it, or empty text."""
        self._file.reading.spend()
        definitions = next((scope[name] for scope in reversed(scopes) if name in scope), None)
        if definitions is None:
            # A name that nothing defines is a mistake, and ends the kernel.
            is_pythons = name in _PYTHONS and (name not in BUILTINS or bool(parts))
            return f"{name} is nothing that Triton compiles" if is_pythons else ""
        for definition in definitions:
            note = self._of_definition(definition, name, parts, call, scopes, depth)
            if note:
                return note
        return ""

    def _of_definition(
        self,
        definition: ast.AST | str,
        name: str,
        parts: list[str],
        call: ast.Call | None,
        scopes: list[_Scope],
        depth: int,
    ) -> str:
        if isinstance(definition, str):
            return self._of_import(".".join([definition, *parts]), call)
        if isinstance(definition, ast.ClassDef):
            return f"the class {name}"
        if isinstance(definition, _FUNCTIONS):
            if parts:
                return f"an attribute of the function {name}"
            self._file.look_at(definition)
            if not self._file.is_decorated(definition, (_CONSTANT_FUNCTION,)):
                return ""
            is_constant = call is not None and self._is_constant(call)
            return "" if is_constant else f"{name} of what is known at run time alone"
        if isinstance(definition, ast.Name | ast.Attribute) and depth < _MAX_DEPTH:
            root, more, _ = _chain(definition)
            is_known = isinstance(root, ast.Name) and any(root.id in scope for scope in scopes)
            if isinstance(root, ast.Name) and is_known:
                return self._of_global(root.id, [*more, *parts], call, scopes, depth + 1)
        if isinstance(definition, ast.Call) and isinstance(definition.func, ast.Name):
            maker = definition.func.id
            made_by = next((scope[maker] for scope in reversed(scopes) if maker in scope), [])
            if any(isinstance(item, ast.ClassDef) for item in made_by):
                return f"{name} is an object of the class {maker}"
            if maker in _CHANGEABLE and not made_by:
                return f"{name} is a global that can change"
        if isinstance(definition, ast.List | ast.Dict | ast.Set):
            return f"{name} is a global that can change"
        return next(filter(None, (wrong_attribute(part, is_called=False) for part in parts)), "")

    def _of_import(self, name: str, call: ast.Call | None) -> str:
        if self._file.is_compiled(name, is_called=call is not None) or (call is None and is_constant_of(name)):
            return ""
        if call is not None and name.startswith("math."):
            return "" if self._is_constant(call) else f"{name} of what is known at run time alone"
        return f"{name} is nothing that Triton compiles"

    def _is_constant(self, call: ast.Call) -> bool:
        """Whether the arguments of a call are known to the compiler; names from outside of the function are."""
        return self._is_constant_function or not any(
            (isinstance(node, ast.Name) and id(node) not in self._free and node.id not in self._constants)
            or (isinstance(node, ast.Call) and not _is_constant_function(node.func))
            for given in (*call.args, *(item.value for item in call.keywords))
            for node in self._file.reading.walk(given)
        )

    def _by_name(self, call: ast.Call) -> str:
        if not isinstance(call.func, ast.Name) or call.func.id not in ("getattr", "hasattr") or len(call.args) < 2:
            return ""
        attribute = self._file.reading.folded(call.args[1])
        return "an attribute with a computed name" if attribute is None else wrong_attribute(attribute, is_called=False)


def _is_constant_function(function: ast.expr) -> bool:
    """Whether a function is one of Python or of `math`, which gives a constant for constants."""
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id == "math"
    return isinstance(function, ast.Name) and function.id in BUILTINS


def _is_static_range(over: ast.expr) -> bool:
    root, parts, _ = _chain(over.func if isinstance(over, ast.Call) else over)
    return isinstance(root, ast.Name) and [root.id, *parts][-1].endswith("static_range")


def _run_nodes(reading: Reading, function: ast.AST) -> Iterator[ast.AST]:
    """What runs with a function, an expression before its parts: no decorators and no annotations."""
    waiting: list[ast.AST] = []
    if isinstance(function, _FUNCTIONS):
        waiting += function.args.defaults
        waiting += [value for value in function.args.kw_defaults if value is not None]
        waiting += function.body if isinstance(function.body, list) else [function.body]
    while waiting:
        node = waiting.pop()
        reading.spend()
        yield node
        waiting += children(node, _NOT_RUN)


def _all_parameters(function: ast.AST) -> list[ast.arg]:
    if not isinstance(function, _FUNCTIONS):
        return []
    given = function.args
    more = [item for item in (given.vararg, given.kwarg) if item is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *more]


def _parameters(function: ast.AST) -> set[str]:
    return {item.arg for item in _all_parameters(function)}


def _constant_parameters(function: ast.AST) -> set[str]:
    return {
        item.arg
        for item in _all_parameters(function)
        if item.annotation is not None and _names_constexpr(item.annotation)
    }


def _names_constexpr(annotation: ast.expr) -> bool:
    words = (
        getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "value", "") for node in walk(annotation)
    )
    return any("constexpr" in word for word in words if isinstance(word, str))


def _chain(node: ast.AST) -> tuple[ast.AST, list[str], set[int]]:
    """What an attribute is taken from, the attributes from there on, and the ids of the nodes that were passed."""
    parts: list[str] = []
    passed = {id(node)}
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
        passed.add(id(node))
    return node, parts[::-1], passed


def _definitions(reading: Reading, body: list[ast.stmt]) -> _Scope:
    """What the names of a scope stand for, in all of its branches."""
    found: _Scope = {}

    def note(name: str, value: ast.AST | str) -> None:
        found.setdefault(name, []).append(value)

    waiting: list[ast.AST] = [*body]
    while waiting:
        node = waiting.pop()
        reading.spend()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            note(node.name, node)
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole, first = alias.name, alias.name.partition(".")[0]
                note(alias.asname or first, whole if alias.asname else first)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                note(alias.asname or alias.name, f"{node.module or ''}.{alias.name}")
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for name, value in _assigned(target, node.value):
                    note(name, value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            for name, value in _assigned(node.target, node.value):
                note(name, value)
        elif isinstance(node, ast.For):
            for name in targets_of(node.target):
                note(name, node)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            for name in targets_of(node.optional_vars):
                note(name, node)
        if not isinstance(node, ast.Lambda):
            waiting += children(node)
    return found


def _assigned(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.AST]]:
    """Names that an assignment changes, each with the value that it gets, or else with all of them."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for left, right in zip(target.elts, value.elts, strict=True):
            yield from _assigned(left, right)
    elif not isinstance(target, ast.Attribute | ast.Subscript):
        whole = value if isinstance(target, ast.Name) else ast.Expr(value)
        for name in targets_of(target):
            yield name, whole

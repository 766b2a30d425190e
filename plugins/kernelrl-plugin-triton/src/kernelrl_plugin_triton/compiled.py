"""Python constructs in a kernel's body that Triton does not compile, but that its interpreter would execute.

A device has no lists. A list in a kernel is a fixed number of values, which Triton distinguishes at compile time. So a
list cannot grow in a loop that is executed on the device, and cannot be indexed by a run-time value.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

__all__ = ["not_compiled"]

_NODES = (
    *(ast.Break, ast.Continue, ast.Try, ast.Delete, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.Await),
    *(ast.Dict, ast.Set, ast.DictComp, ast.SetComp, ast.GeneratorExp),
)
_OF_LISTS = frozenset({"append", "extend", "insert", "pop", "remove", "clear", "reverse"})
_AT_RUN_TIME = frozenset({"load", "program_id", "num_programs", "sum", "max", "min", "argmax", "argmin"})
"""Functions of `triton.language` whose results are known only at run time."""
_ARITHMETIC = (ast.BinOp, ast.UnaryOp, ast.Name, ast.Constant, ast.operator, ast.unaryop, ast.expr_context)


def not_compiled(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes of a kernel's body that Triton's compiler refuses, each with the reason."""
    body = _Body(function)
    for statement in function.body:
        yield from body.refused(statement, {}, set())


class _Body:
    def __init__(self, function: ast.FunctionDef) -> None:
        parameters = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
        self._values: dict[str, list[ast.expr | None]] = {}
        """Expressions bound to each name; None for a run-time value."""
        for parameter in parameters:
            if parameter.annotation is None:
                self._values.setdefault(parameter.arg, []).append(None)
        for node in ast.walk(function):
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                at_run_time = not _is_static(node)
                self._values.setdefault(node.target.id, []).append(None if at_run_time else node.iter)
            for name, value in _bindings(node):
                self._values.setdefault(name, []).append(value)

    def refused(self, node: ast.AST, loops: dict[str, bool], carried: set[str]) -> Iterator[tuple[ast.AST, str]]:
        """Yield the refused nodes within `node`, each with the reason.

        Args:
            loops: variables of the enclosing loops, and whether their values are known only at run time.
            carried: names that an enclosing device loop changes.
        """
        why = self._why(node, loops, carried)
        if why:
            yield node, why
        if isinstance(node, ast.For | ast.While):
            at_run_time = isinstance(node, ast.While) or not _is_static(node)
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                loops = {**loops, node.target.id: at_run_time}
            if at_run_time:
                carried = carried | self._carried(node)
        for below in ast.iter_child_nodes(node):
            yield from self.refused(below, loops, carried)

    def _carried(self, loop: ast.AST) -> set[str]:
        inside = [(name, id(value)) for node in ast.walk(loop) for name, value in _bindings(node)]
        return {
            name
            for name, _ in inside
            if any(value is None or (name, id(value)) not in inside for value in self._values[name])
        }

    def _why(self, node: ast.AST, loops: dict[str, bool], carried: set[str]) -> str:
        if isinstance(node, _NODES):
            return f"unsupported AST node type: {type(node).__name__}"
        if isinstance(node, ast.ListComp) and isinstance(node.generators[0].iter, ast.Call):
            return "only tuple comprehensions are supported"
        if isinstance(node, ast.Attribute) and node.attr in _OF_LISTS and self._is_tuple(node.value, set()):
            return f"'tuple' object has no attribute {node.attr}"
        if isinstance(node, ast.Subscript):
            if isinstance(node.ctx, ast.Store):
                return "__setitem__ is not supported in triton"
            if self._is_at_run_time(node.slice, loops, set()):
                return "a tuple is indexed by a value that is known only at run time"
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Add):
            parts = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.target, node.value)
            names = {part.id for part in parts if isinstance(part, ast.Name)}
            if names & carried and any(self._is_tuple(part, set()) for part in parts):
                return (
                    f"loop-carried variable {min(names & carried)} changes its type: the tuple grows in each iteration"
                )
        return ""

    def _is_at_run_time(self, value: ast.expr | None, loops: dict[str, bool], seen: set[str]) -> bool:
        """Whether an index is arithmetic on run-time values."""
        if value is None:
            return True
        if isinstance(value, ast.Call):
            return isinstance(value.func, ast.Attribute) and value.func.attr in _AT_RUN_TIME
        if not all(isinstance(node, _ARITHMETIC) for node in ast.walk(value)):
            return False
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} - seen
        return any(
            loops[name]
            if name in loops
            else name in self._values
            and all(self._is_at_run_time(bound, loops, seen | {name}) for bound in self._values[name])
            for name in names
        )

    def _is_tuple(self, value: ast.expr | None, seen: set[str]) -> bool:
        if isinstance(value, ast.Name) and value.id not in seen:
            return any(self._is_tuple(bound, seen | {value.id}) for bound in self._values.get(value.id, ()))
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
            return self._is_tuple(value.left, seen) or self._is_tuple(value.right, seen)
        return isinstance(value, ast.List | ast.Tuple | ast.ListComp)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names that a node binds individually, each with its value."""
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    value = getattr(node, "value", None)
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and value is not None:
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple):
                # The values of the elements are not known individually.
                yield from ((part.id, value) for part in target.elts if isinstance(part, ast.Name))


def _is_static(loop: ast.For) -> bool:
    function = loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter
    # Triton rejects loops over anything but `range`, or unrolls them at compile time.
    return getattr(function, "attr", getattr(function, "id", "")) != "range"

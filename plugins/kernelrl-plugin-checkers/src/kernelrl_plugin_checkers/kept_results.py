"""Rules on what Python keeps from one call of `ModelNew` to the next: results, calls counted, tensors."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

from kernelrl_core.api.sources import children
from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["kept_results"]

_IDENTITIES = frozenset({"data_ptr", "untyped_storage", "_cdata"})
_LOOKUPS = frozenset({"get", "setdefault", "pop", "__getitem__", "__contains__"})


def kept_results(reading: Reading) -> Iterator[Breach]:
    """Look-ups by the identity of a tensor, results that are returned again, counted calls, and kept tensors."""
    identities = _identities(reading)
    for node in reading.nodes:
        if isinstance(node, ast.Subscript):
            if _has_identity(reading, node.slice, identities):
                yield "result_cache", node.lineno, "a look-up by the identity of a tensor"
        elif isinstance(node, ast.Compare):
            yield from _comparison(reading, node, identities)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LOOKUPS
            and node.args
            and _has_identity(reading, node.args[0], identities)
        ):
            yield "result_cache", node.lineno, "a look-up by the identity of a tensor"
    for entry in reading.index.entries:
        yield from _entry(reading, entry)


def _is_identity(reading: Reading, node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    return attribute in _IDENTITIES or reading.dotted(node.func) == "id"


def _identities(reading: Reading) -> frozenset[str]:
    """Names that are given the identity of a tensor."""
    found = set()
    for node in reading.nodes:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and _has_identity(reading, node.value, frozenset())
        ):
            found.add(node.targets[0].id)
    return frozenset(found)


def _has_identity(reading: Reading, node: ast.AST, names: frozenset[str]) -> bool:
    """Whether an expression is such an identity or holds one. The arguments of other calls are not its parts."""
    waiting = [node]
    while waiting:
        below = waiting.pop()
        reading.spend()
        if _is_identity(reading, below) or (isinstance(below, ast.Name) and below.id in names):
            return True
        if isinstance(below, ast.Call):
            if reading.dotted(below.func) in ("hash", "str", "tuple", "int", "repr", "frozenset"):
                waiting += below.args
        elif isinstance(below, ast.BinOp) and isinstance(below.op, ast.Mod | ast.BitAnd):
            # Alignment.
            continue
        elif not isinstance(below, ast.Lambda | ast.Subscript):
            waiting += children(below)
    return False


def _comparison(reading: Reading, node: ast.Compare, names: frozenset[str]) -> Iterator[Breach]:
    sides = [node.left, *node.comparators]
    with_identity = [side for side in sides if _has_identity(reading, side, names)]
    if isinstance(node.ops[0], ast.In | ast.NotIn):
        if with_identity and with_identity[0] is node.left:
            yield "result_cache", node.lineno, "a look-up by the identity of a tensor"
    elif len(with_identity) == 1 and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
        # Two inputs may be compared; what is kept is an attribute, an element or a global.
        other = next((side for side in sides if side is not with_identity[0]), None)
        while isinstance(other, ast.Attribute | ast.Subscript):
            other = other.value
        if isinstance(other, ast.Name):
            yield "result_cache", node.lineno, "the identity of a tensor, compared with one that was kept"


def _entry(reading: Reading, entry: ast.FunctionDef) -> Iterator[Breach]:
    own = reading.own_nodes(entry)
    shared = {name for node in own if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names}
    owner = entry.args.args[0].arg if entry.args.args else "self"
    module_names = {
        target.id
        for node in reading.tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    locals_ = {node.id for node in own if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} - shared

    def kept(node: ast.AST) -> str:
        """Name of what outlives the call, or empty text."""
        while isinstance(node, ast.Subscript):
            node = node.value
        if isinstance(node, ast.Attribute):
            base = node.value
            if isinstance(base, ast.Name) and (base.id in (owner, "ModelNew") or base.id in module_names):
                return node.attr
        if isinstance(node, ast.Name) and node.id not in locals_ and (node.id in shared or node.id in module_names):
            return node.id
        return ""

    written: dict[str, int] = {}
    counted: dict[str, int] = {}
    for node in own:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if kept(target):
                    written.setdefault(kept(target), node.lineno)
        elif isinstance(node, ast.AugAssign) and kept(node.target):
            counted.setdefault(kept(node.target), node.lineno)
    for name, line in written.items():
        yield "kept_state", line, f"{name} outlives the call"
    for test in [node.test for node in own if isinstance(node, ast.If | ast.IfExp | ast.While)]:
        for below in reading.walk(test):
            name = kept(below)
            if name in counted:
                yield "call_counter", counted[name], f"{name} is counted, and decides in line {test.lineno}"
    yield from _set_once(reading, entry, own, kept)
    for branch in [node for node in own if isinstance(node, ast.If)]:
        for node in [below for statement in branch.body for below in reading.walk(statement)]:
            if isinstance(node, ast.Return) and node.value is not None:
                name = _returned(node.value, kept)
                if name in written:
                    yield "result_cache", node.lineno, f"{name}, which an earlier call has set, is returned"


def _set_once(
    reading: Reading, entry: ast.FunctionDef, own: Sequence[ast.AST], kept: Callable[[ast.AST], str]
) -> Iterator[Breach]:
    """What only some calls set, and every call returns. A buffer that a kernel fills, or a graph, is another matter."""
    always: set[str] = set()
    sometimes: set[str] = set()
    for statement in entry.body:
        for node in reading.walk(statement):
            if isinstance(node, ast.Assign):
                (sometimes if isinstance(statement, ast.If) else always).update(kept(target) for target in node.targets)
            elif isinstance(node, ast.Call) and not isinstance(statement, ast.If):
                always.update(kept(argument) for argument in (*node.args, *(word.value for word in node.keywords)))
            elif isinstance(node, ast.Attribute) and node.attr == "replay":
                return
    for node in own:
        if isinstance(node, ast.Return) and node.value is not None:
            name = _returned(node.value, kept)
            if name and name in sometimes - always:
                yield "result_cache", node.lineno, f"{name}, which only some calls set, is returned"


def _returned(value: ast.expr, kept: Callable[[ast.AST], str]) -> str:
    while (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in (*_LOOKUPS, "clone", "detach", "view", "contiguous")
    ):
        value = value.func.value
    return kept(value)

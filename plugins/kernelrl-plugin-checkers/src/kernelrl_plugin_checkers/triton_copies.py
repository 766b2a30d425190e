"""Kernels in Triton that only copy."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelrl_plugin_checkers.reading import Breach, Reading

__all__ = ["copying_kernels"]


def copying_kernels(reading: Reading) -> Iterator[Breach]:
    """Kernels whose every store writes what was loaded from the same place of another tensor."""
    for node in reading.nodes:
        if isinstance(node, ast.FunctionDef) and any(
            reading.dotted(decorator) == "triton.jit" for decorator in node.decorator_list
        ):
            own = reading.own_nodes(node)
            values: dict[str, list[ast.expr]] = {}
            for assignment in own:
                if isinstance(assignment, ast.Assign) and isinstance(assignment.targets[0], ast.Name):
                    values.setdefault(assignment.targets[0].id, []).append(assignment.value)
            stores = [
                call
                for call in own
                if isinstance(call, ast.Call)
                and reading.dotted(call.func) == "triton.language.store"
                and len(call.args) >= 2
            ]
            if stores and all(_copies(reading, call, values) for call in stores):
                yield "fig_leaf", node.lineno, "a kernel that only copies"


def _copies(reading: Reading, store: ast.Call, values: dict[str, list[ast.expr]]) -> bool:
    value = store.args[1]
    for _ in range(4):
        if isinstance(value, ast.Name) and len(values.get(value.id, ())) == 1:
            value = values[value.id][0]
        elif isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult | ast.Div) and _is_one(value.right):
            value = value.left
    return (
        isinstance(value, ast.Call)
        and reading.dotted(value.func) == "triton.language.load"
        and bool(value.args)
        and _offset(value.args[0]) == _offset(store.args[0])
    )


def _is_one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value in (1, 1.0)


def _offset(pointer: ast.expr) -> str:
    """What is added to a pointer, as text to compare."""
    return ast.unparse(pointer.right) if isinstance(pointer, ast.BinOp) else ""

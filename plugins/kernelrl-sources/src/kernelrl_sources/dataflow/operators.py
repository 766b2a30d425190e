"""Operators of torch and of Python: the nodes and values that they return."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_sources.dataflow.canonical import PAIRS, canonical_node
from kernelrl_sources.dataflow.graph import CONSTANT, NUMBER, SAME_OPERATOR, Node, number_node
from kernelrl_sources.dataflow.values import (
    UNKNOWN,
    Const,
    Layer,
    flattened,
    item_at,
    number_of,
    one_of,
    operands_of,
    truth_value,
)

__all__ = [
    "OPERATORS",
    "argument_nodes",
    "boolean_value",
    "compared_value",
    "has_number",
    "operator_node",
    "subscript_value",
    "unary_node",
    "variant_flags",
    "weights_of",
]

_MIRRORED = {"gt": "lt", "ge": "le", "greater": "lt", "greaterequal": "le"}
_CASTS = frozenset({"to", "type", "typeas", "float", "double", "half", "bfloat16"})
_INERT = _CASTS | {"contiguous", "clone", "detach", "cuda", "cpu", "requiresgrad", "data"}
_INERT_KEYWORDS = frozenset({"inplace", "device", "training", "requires_grad", "out", "generator", "dtype"})
_TRUE_BY_DEFAULT = frozenset({"bias", "affine", "elementwise_affine", "count_include_pad", "unbiased"})
_ORDER = ("condition", "input", "x", "tensor", "tensors", "query", "key", "value", "mat1", "mat2", "mat", "other")
_LATER = ("running_mean", "running_var", "target", "weight", "bias")
_WITH_ITEMS = frozenset({*PAIRS, "sort", "topk", "kthvalue", "mode"})
"""Operators whose result is a tuple."""
OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordivide",
    ast.Mod: "remainder",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.USub: "neg",
    ast.Invert: "bitwisenot",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}


def operator_node(label: str, operands: list[Node]) -> Any:
    """The node of an operator; its operand where it computes nothing, a constant where only numbers enter."""
    label = SAME_OPERATOR.get(label, label)
    if label.partition("[")[0] in _INERT and operands:
        return operands[0]
    if label in _MIRRORED:
        label, operands = _MIRRORED[label], operands[::-1]
    if all(operand.label == NUMBER for operand in operands) and label in OPERATORS.values():
        return Const()
    return canonical_node(label, operands)


def argument_nodes(arguments: list[Any], named: Mapping[str, Any]) -> list[Node]:
    """Operands of a call: tensors in the order of its signature, then one `#` if there are numbers."""
    keys = sorted((key for key in named if key not in _INERT_KEYWORDS), key=_order_of)
    given = [*arguments, *(named[key] for key in keys)]
    found = [node for node in operands_of(given) if node.label != NUMBER]
    if not has_number(arguments, named):
        return found
    numbers = [value for value in flattened(given) if isinstance(value, Const) and _is_number(value)]
    return [*found, number_node(number_of(numbers[0])) if len(numbers) == 1 else CONSTANT]


def _order_of(key: str) -> tuple[int, str]:
    """Position of a keyword in signatures."""
    if key in _ORDER:
        return _ORDER.index(key), key
    return (len(_ORDER) + 1 + _LATER.index(key) if key in _LATER else len(_ORDER)), key


def _is_number(value: Const) -> bool:
    return not isinstance(value.value, bool | str | None.__class__)


def has_number(arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether a call has a number that its operator depends on."""
    values = flattened([*arguments, *(value for key, value in named.items() if key not in _INERT_KEYWORDS)])
    return any(isinstance(v, Const) and _is_number(v) for v in values)


def variant_flags(arguments: Sequence[Any], named: Mapping[str, Any]) -> str:
    """The strings and booleans of a call that select a variant of its operator."""
    found = [v.value for v in arguments if isinstance(v, Const) and (isinstance(v.value, str) or v.value is True)]
    texts = [_variant(value) for value in found]
    for key, value in named.items():
        if not isinstance(value, Const) or key in _INERT_KEYWORDS:
            continue
        if isinstance(value.value, str):
            texts.append(_variant(value.value))
        elif isinstance(value.value, bool) and value.value is not (key in _TRUE_BY_DEFAULT):
            texts.append(f"{key}={value.value}")
    return f"[{','.join(sorted(texts))}]" if texts else ""


def weights_of(label: str, named: Mapping[str, Any]) -> int:
    """Number of weights that a layer multiplies and adds, for layers that have a canonical form with them."""
    count = {"layernorm": 2, "rmsnorm": 1}.get(label, 0)
    without = [key for key in ("elementwise_affine", "bias") if isinstance(named.get(key), Const)]
    if "elementwise_affine" in without and named["elementwise_affine"].value is False:
        return 0
    return count - (count == 2 and "bias" in without and named["bias"].value is False)


def _variant(value: Any) -> str:
    """A flag as text; an einsum equation with its letters renamed in order."""
    text = str(value)
    if "->" not in text:
        return text
    letters: dict[str, str] = {}
    return "".join(letters.setdefault(c, chr(97 + len(letters))) if c.isalpha() else c for c in text if c != " ")


def subscript_value(owner: Any, index: Any) -> Any:
    match owner, index:
        case list(), Const(value=int() as position) if -len(owner) <= position < len(owner):
            return owner[position]
        case Layer(label="sequential", children=children), Const(value=int() as position) if (
            -len(children) <= position < len(children)
        ):
            return children[position]
        case dict(), Const(value=key) if key in owner:
            return owner[key]
        case ((list() | dict()), _) if owner:
            first, *others = list(owner.values()) if isinstance(owner, dict) else owner
            for other in others:
                first = one_of(first, other)
            return first
        case Node(), Const(value=int() as position) if owner.name in _WITH_ITEMS and position >= 0:
            return item_at(owner, position)
        case Node(), _:
            tensors = [node for node in operands_of([index]) if node.label != NUMBER]
            return Node("getitem", [owner, *(tensors or [CONSTANT])])
    return Const()


def unary_node(op: ast.unaryop, operand: Any) -> Any:
    if isinstance(op, ast.Not):
        known = truth_value(operand)
        return Const(not known) if known is not None else Const()
    if isinstance(operand, Const):
        value = operand.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return Const(-value) if isinstance(op, ast.USub) and is_number else operand
    if isinstance(op, ast.UAdd):
        return operand
    return operator_node(OPERATORS[type(op)], list(operands_of([operand])))


def boolean_value(op: ast.boolop, values: list[Any]) -> Any:
    known = [truth_value(value) for value in values]
    ending = isinstance(op, ast.Or)
    if ending in known:
        return values[known.index(ending)]
    if None not in known:
        return values[-1]
    return Const()


def compared_value(left: Any, ops: list[ast.cmpop], others: list[Any]) -> Any:
    match ops, others:
        case [ast.Is() | ast.IsNot() as op], [Const(value=None)]:
            if (isinstance(left, Const) and left.value is UNKNOWN) or (isinstance(left, Node) and left.label == "if"):
                return Const()
            return Const((isinstance(left, Const) and left.value is None) is isinstance(op, ast.Is))
        case [ast.Eq() | ast.NotEq() as op], [Const(value=str() as text)] if isinstance(left, Const):
            if isinstance(left.value, str):
                return Const((left.value == text) is isinstance(op, ast.Eq))
    if len(ops) == 1 and (isinstance(left, Node) or isinstance(others[0], Node)) and type(ops[0]) in OPERATORS:
        return operator_node(OPERATORS[type(ops[0])], list(operands_of([left, *others])))
    return Const()

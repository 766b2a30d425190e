"""Forms that the rules of `canonical` look for: an operator with its operands, or a value up to a part that does not
count."""

from __future__ import annotations

from collections.abc import Sequence

from kernelrl_sources.dataflow.graph import CONSTANT, NUMBER, Node

__all__ = [
    "is_mean_of",
    "is_number",
    "is_same",
    "is_zero",
    "joined",
    "numbers_of",
    "one_plus",
    "operand_of",
    "shifted",
    "squared",
    "tensors_of",
    "without_epsilon",
]


def is_number(node: Node) -> bool:
    return node.label == NUMBER


def is_zero(node: Node) -> bool:
    return node.label == NUMBER and node.number == 0


def is_same(first: Node, second: Node) -> bool:
    return first.digest == second.digest


def tensors_of(operands: Sequence[Node]) -> list[Node]:
    return [operand for operand in operands if operand.label != NUMBER]


def numbers_of(operands: Sequence[Node]) -> list[Node]:
    return [operand for operand in operands if operand.label == NUMBER]


def operand_of(node: Node, name: str) -> Node | None:
    """The operand of an operator with a single tensor; None for another operator."""
    tensors = tensors_of(node.operands)
    return tensors[0] if node.name == name and len(tensors) == 1 else None


def one_plus(node: Node) -> Node | None:
    """x of `1 + x`; None for another node."""
    return operand_of(node, "add") if len(node.operands) == 2 else None


def without_epsilon(node: Node) -> Node:
    """x of `x + eps`, `clamp(x, eps)` and `maximum(x, eps)`; otherwise the node itself."""
    if node.name in ("add", "clamp", "maximum") and len(tensors_of(node.operands)) == 1:
        return tensors_of(node.operands)[0]
    return node


def squared(node: Node) -> Node | None:
    """x of `x * x`; None for another node."""
    is_square = node.label == "mul" and len(node.operands) == 2 and is_same(*node.operands)
    return node.operands[0] if is_square else None


def shifted(node: Node) -> Node:
    """x of `x - amax(x)`; otherwise the node itself."""
    if node.label == "sub" and len(node.operands) == 2:
        value, maximum = node.operands
        of = operand_of(maximum, "amax")
        if of is not None and is_same(of, value):
            return value
    return node


def _flattened(name: str, operands: Sequence[Node]) -> list[Node]:
    """Operands of a nested sum or product."""
    return [part for operand in operands for part in (operand.operands if operand.label == name else (operand,))]


def joined(name: str, operands: Sequence[Node]) -> list[Node]:
    """Operands of a sum or product, with one number instead of several."""
    parts = _flattened(name, operands)
    numbers = numbers_of(parts)
    return [*tensors_of(parts), *(numbers if len(numbers) < 2 else [CONSTANT])]


def is_mean_of(node: Node, value: Node) -> bool:
    of = operand_of(node, "mean")
    return of is not None and is_same(of, value)

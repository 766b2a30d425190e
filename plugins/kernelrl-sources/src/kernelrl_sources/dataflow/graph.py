"""Nodes of a data flow graph, and the names of their operators."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

__all__ = [
    "CONSTANT",
    "NUMBER",
    "SAME_OPERATOR",
    "Node",
    "canonical_name",
    "nodes_of",
    "number_node",
]

NUMBER = "#"
SAME_OPERATOR = {
    "absolute": "abs",
    "arccos": "acos",
    "clip": "clamp",
    "divide": "div",
    "truedivide": "div",
    "view": "reshape",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "mm": "matmul",
    "bmm": "matmul",
    "mv": "matmul",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "concat": "cat",
    "concatenate": "cat",
    "t": "transpose",
    "mt": "transpose",
    "adjoint": "transpose",
    "values": "getitem",
    "expit": "sigmoid",
    "swish": "silu",
    "vectornorm": "norm",
    "clampmin": "clamp",
    "crossentropyloss": "crossentropy",
    "kldivloss": "kldiv",
    "bceloss": "binarycrossentropy",
    "bcewithlogitsloss": "binarycrossentropywithlogits",
}
_COMMUTATIVE = frozenset({"add", "mul", "eq", "ne", "maximum", "minimum", "logicaland", "logicalor", "bitand", "bitor"})


class Node:
    """A value of the graph: an operator with its operands, or a leaf (`input`, `parameter`)."""

    __slots__ = ("digest", "label", "number", "operands")

    def __init__(
        self, label: str, operands: Sequence[Node] = (), *, key: str = "", number: float | None = None
    ) -> None:
        if label in _COMMUTATIVE:
            operands = sorted(operands, key=lambda node: node.digest)
        self.label = label
        self.operands = tuple(operands)
        text = "\0".join([key or label, *(node.digest for node in self.operands)])
        self.digest: str = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
        """Equal for equal subgraphs."""
        self.number = number
        """Value of a number that the source writes. The digest ignores it."""

    @property
    def name(self) -> str:
        """The label without the flags of a variant."""
        return self.label.partition("[")[0]

    @property
    def flags(self) -> str:
        """The flags of a variant with their brackets; empty without flags."""
        return self.label[len(self.name) :]


CONSTANT = Node(NUMBER)


@functools.lru_cache(1024)
def number_node(value: float | None) -> Node:
    """The node of a number; None: its value is unknown."""
    return CONSTANT if value is None else Node(NUMBER, number=value)


def nodes_of(root: Node) -> list[Node]:
    """All nodes of a graph, each once."""
    found, waiting = {id(root): root}, [root]
    while waiting:
        for node in waiting.pop().operands:
            if id(node) not in found:
                found[id(node)] = node
                waiting.append(node)
    return list(found.values())


def canonical_name(name: str) -> str:
    """Name of an operator: equal for `torch.nn.LayerNorm`, `F.layer_norm` and for in-place variants."""
    label = name.replace("_", "").lower()
    return SAME_OPERATOR.get(label, label)

"""Values that a symbolic evaluation knows, and how they combine."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kernelrl_sources.dataflow.canonical import canonical_node
from kernelrl_sources.dataflow.graph import NUMBER, Node, canonical_name, number_node

__all__ = [
    "UNKNOWN",
    "Const",
    "Function",
    "Instance",
    "Layer",
    "Method",
    "Name",
    "Repeated",
    "flattened",
    "item_at",
    "joined_scopes",
    "label_of",
    "number_of",
    "one_of",
    "operands_of",
    "truth_value",
]

UNKNOWN = object()

_GREATEST_NUMBER = 1e30


@attrs.frozen
class Const:
    """A value known without tensors."""

    value: Any = UNKNOWN


@attrs.frozen(eq=False)
class Name:
    """A dotted name that the source does not define, such as `torch.nn.functional.relu`."""

    parts: tuple[str, ...]


@attrs.frozen(eq=False)
class Layer:
    """A module of a library."""

    label: str
    children: tuple[Any, ...] = ()
    numbers: bool = False
    weights: int = 0


@attrs.frozen(eq=False)
class Function:
    node: ast.FunctionDef | ast.Lambda
    scope: Mapping[str, Any]
    owner: Any = None
    """The instance of a method; None for a plain function."""
    home: ast.ClassDef | None = None


@attrs.frozen(eq=False)
class Method:
    """A method of a value that the source does not define."""

    owner: Any
    name: str


@attrs.define(eq=False)
class Instance:
    kind: ast.ClassDef
    attributes: dict[str, Any] = attrs.field(factory=dict)


class Repeated(list[Any]):
    """A list of unknown length; its items are one period."""


def operands_of(values: Iterable[Any]) -> Iterator[Node]:
    """Values as nodes; lists are flattened, and lists of numbers are one number."""
    for value in values:
        match value:
            case Node():
                yield value
            case list() | dict():
                items = list(operands_of(value.values() if isinstance(value, dict) else value))
                tensors = [node for node in items if node.label != NUMBER]
                yield from tensors or items[:1]
            case Const(value=bool() | str() | None):
                pass
            case Const():
                yield number_node(number_of(value))
            case Layer() | Instance() | Name() | Function() | ast.ClassDef():
                yield Node(label_of(value))


def number_of(value: Any) -> float | None:
    """The number that a value is; None for an unknown value and for any other one."""
    is_number = isinstance(value, Const) and type(value.value) in (int, float)
    # Integers may have any number of digits.
    return float(value.value) if is_number and abs(value.value) < _GREATEST_NUMBER else None


def flattened(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from flattened(value)
        elif isinstance(value, dict):
            yield from flattened(value.values())
        else:
            yield value


def label_of(value: Any) -> str:
    match value:
        case Layer():
            return value.label
        case Name(parts=parts):
            return canonical_name(parts[-1])
    return "module"


def item_at(value: Any, position: int) -> Any:
    """A part of a value that is unpacked or iterated over."""
    match value:
        case list():
            if isinstance(value, Repeated):
                return value[0] if value else Const()
            return value[position] if position < len(value) else Const()
        case Node():
            return canonical_node(f"item{position}", [value])
    return Const()


def one_of(first: Any, second: Any) -> Any:
    """A value that is one of two."""
    if first is second or (isinstance(first, Node) and isinstance(second, Node) and first.digest == second.digest):
        return first
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return type(first)(one_of(one, two) for one, two in zip(first, second, strict=True))
    if isinstance(first, Node | list) or isinstance(second, Node | list):
        return Node("if", list(operands_of([first, second])))
    if isinstance(first, Const) and isinstance(second, Const):
        return Const()
    if isinstance(first, Layer | Instance | Function) or isinstance(second, Layer | Instance | Function):
        callables = [value for value in (first, second) if not isinstance(value, Const)]
        return callables[0] if len(callables) == 1 else Layer("if", tuple(callables))
    return first


def joined_scopes(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Names after an `if`, of which either branch was taken."""
    both = {name: one_of(value, second[name]) for name, value in first.items() if name in second}
    return {**second, **first, **both}


def truth_value(value: Any) -> bool | None:
    """Truth value, if it does not depend on numbers."""
    match value:
        case Const(value=bool() | str() | None):
            return bool(value.value)
        case list() | dict() if not isinstance(value, Repeated):
            return bool(value)
        case Instance() | Layer() | Function():
            return True
    return None

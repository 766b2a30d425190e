"""Encoding of values for the protocol: JSON with tags, of bounded depth and size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import attrs

from kernelrl_judge.protocol.frames import MAX_BODY_BYTES, ProtocolError

__all__ = ["DTYPES", "TensorLeaf", "decode_tree", "encode_tree", "leaves_of"]

_MAX_DEPTH = 16
_MAX_NODES = 4096
_MAX_DIMENSIONS = 64
_MAX_TEXT_BYTES = 48 * 1024
DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
"""Dtypes that can be encoded."""


@attrs.frozen
class TensorLeaf:
    """A tensor in a value tree."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    """`cpu`, `cuda`, or another device type."""
    offset: int
    """Byte offset of its contents in the shared memory; -1 if they did not fit."""
    strides: tuple[int, ...] | None = None
    """In elements; None for a contiguous tensor. Outputs are contiguous."""

    @property
    def span(self) -> int:
        """Number of elements of memory from its first element to its last."""
        if 0 in self.shape:
            return 0
        if self.strides is None:
            return math.prod(self.shape)
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


def leaves_of(tree: Any) -> Iterator[TensorLeaf]:
    """The leaves of a tree, in the order of the tree."""
    if isinstance(tree, TensorLeaf):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves_of(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves_of(item)


def encode_tree(value: Any) -> bytes:
    """JSON of None, bool, int, float, str, list, tuple, dict with text keys, and `TensorLeaf`.

    Raises:
        TypeError: another type, an integer beyond 64 bits, or a tree too deep or too large.
    """
    body = json.dumps(_tagged(value, _MAX_DEPTH), separators=(",", ":")).encode()
    if len(body) > MAX_BODY_BYTES:
        raise TypeError("the value is too large")
    return body


def _tagged(value: Any, depth: int) -> Any:
    """The value with a tagged object for each type that JSON lacks."""
    if depth < 0:
        raise TypeError("the value is nested too deeply")
    # Exact types: a subclass could have behaviour, which cannot be encoded.
    kind = type(value)
    if value is None or kind in (bool, float):
        return value
    if kind is int:
        if not _fits(value):
            raise TypeError("an integer beyond 64 bits")
        return value
    if kind is str:
        return _text(value)
    if kind in (list, tuple):
        items = [_tagged(item, depth - 1) for item in value]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise TypeError("only text can be a key")
        return {"dict": {_text(key): _tagged(item, depth - 1) for key, item in value.items()}}
    if kind is TensorLeaf:
        return {"tensor": [value.dtype, value.shape, value.device, value.offset, value.strides]}
    raise TypeError(f"a value of type {kind.__name__} cannot be encoded")


def decode_tree(body: bytes) -> Any:
    """The value that `encode_tree` encoded.

    Raises:
        ProtocolError: the bytes encode no value.
    """
    try:
        tagged = json.loads(body)
    except (ValueError, RecursionError):
        raise ProtocolError("the bytes are no JSON") from None
    return _untagged(tagged, _MAX_DEPTH, iter(range(_MAX_NODES)))


def _untagged(tagged: Any, depth: int, nodes_left: Iterator[int]) -> Any:
    """The value without tags.

    Args:
        depth: of further nesting that is allowed.
        nodes_left: has an item for each further node that is allowed.
    """
    if depth < 0 or next(nodes_left, None) is None:
        raise ProtocolError("the value is too deep or too large")
    match tagged:
        case str():
            return _text(tagged)
        case int() if not _fits(tagged):
            raise ProtocolError("an integer beyond 64 bits")
        case [*items] | {"tuple": [*items]}:
            found = [_untagged(item, depth - 1, nodes_left) for item in items]
            return found if isinstance(tagged, list) else tuple(found)
        case {"dict": dict(pairs)}:
            return {_text(key): _untagged(item, depth - 1, nodes_left) for key, item in pairs.items()}
        case {"tensor": [str(dtype), [*shape], str(device), offset, [*_] | None as strides]}:
            return _leaf(dtype, shape, device, offset, strides)
        case dict():
            raise ProtocolError("an unknown tag")
    return tagged


def _leaf(dtype: str, shape: list[Any], device: str, offset: Any, strides: list[Any] | None) -> TensorLeaf:
    if dtype not in DTYPES or len(shape) > _MAX_DIMENSIONS:
        raise ProtocolError("an unknown dtype or too many dimensions")
    if not all(type(number) is int and _fits(number) for number in (*shape, offset, *(strides or ()))):
        raise ProtocolError("an offset that is not a 64-bit integer")
    if min(shape, default=0) < 0 or len(shape) != len(shape if strides is None else strides):
        raise ProtocolError("a negative size, or sizes without strides")
    return TensorLeaf(dtype, tuple(shape), _text(device), offset, None if strides is None else tuple(strides))


def _fits(number: int) -> bool:
    return -(2**63) <= number < 2**63


def _text(text: str) -> str:
    """A text without characters that UTF-8 cannot encode, shortened to the maximum length."""
    return text.encode("utf-8", "replace")[:_MAX_TEXT_BYTES].decode("utf-8", "ignore")

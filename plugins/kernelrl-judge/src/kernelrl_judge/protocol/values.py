"""Encoding of values for the protocol: JSON with tags, of bounded depth and size."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import attrs

from kernelrl_judge.protocol.frames import MAX_BODY_BYTES, ProtocolError

__all__ = ["DTYPES", "MAX_TEXT_BYTES", "ObjectLeaf", "TensorLeaf", "decode_tree", "encode_tree", "leaves_of"]

_MAX_DEPTH = 32
_MAX_NODES = 1 << 16
_MAX_DIMENSIONS = 64
MAX_TEXT_BYTES = 48 * 1024
"""Longer texts are shortened."""
_OBJECT_KINDS = (
    "complex",
    "device",
    "frozenset",
    "named_tuple",
    "namespace",
    "range",
    "set",
    "size",
    "slice",
    "torch",
)
DTYPES = (
    "bool",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "int8",
    "int16",
    "int32",
    "int64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex32",
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


@attrs.frozen
class ObjectLeaf:
    """An object as the values from which it can be built again (`kernelrl_judge.protocol.plain_values`)."""

    kind: str
    """One of `_OBJECT_KINDS`, such as `device`."""
    parts: Any
    """A value tree. Only the parts of a named tuple contain tensors."""


def leaves_of(tree: Any) -> Iterator[TensorLeaf]:
    """The tensors of a tree, in the order of the tree."""
    if isinstance(tree, TensorLeaf):
        yield tree
    elif isinstance(tree, ObjectLeaf):
        yield from leaves_of(tree.parts)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves_of(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves_of(item)


def encode_tree(value: Any) -> bytes:
    """JSON of None, bool, int, float, str, list, tuple, dict, `TensorLeaf` and `ObjectLeaf`.

    Keys of dicts are None, numbers, texts, or tuples of them.

    Raises:
        TypeError: another type, an integer beyond 64 bits, or a tree too deep or too large.
    """
    tagged = _tagged(value, _MAX_DEPTH, iter(range(_MAX_NODES)))
    body = json.dumps(tagged, separators=(",", ":")).encode()
    if len(body) > MAX_BODY_BYTES:
        raise TypeError("the value is too large")
    return body


def _tagged(value: Any, depth: int, nodes_left: Iterator[int]) -> Any:
    """The value with a tagged object for each type that JSON lacks.

    Args:
        depth: of further nesting that is allowed.
        nodes_left: has an item for each further node that is allowed.
    """
    if depth < 0:
        raise TypeError("the value is nested too deeply")
    if next(nodes_left, None) is None:
        raise TypeError("the value is too large")
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
        items = [_tagged(item, depth - 1, nodes_left) for item in value]
        return items if kind is list else {"tuple": items}
    if kind is dict:
        return _tagged_dict(value, depth, nodes_left)
    if kind is TensorLeaf:
        if value.dtype not in DTYPES or len(value.shape) > _MAX_DIMENSIONS:
            raise TypeError("an unknown dtype or too many dimensions")
        return {"tensor": [value.dtype, value.shape, value.device, value.offset, value.strides]}
    if kind is ObjectLeaf:
        return {"object": [value.kind, _tagged(value.parts, depth - 1, nodes_left)]}
    raise TypeError(f"a value of type {kind.__name__} cannot be encoded")


def _tagged_dict(value: dict[Any, Any], depth: int, nodes_left: Iterator[int]) -> dict[str, Any]:
    if all(type(key) is str for key in value):
        return {"dict": {_text(key): _tagged(item, depth - 1, nodes_left) for key, item in value.items()}}
    if not all(map(_is_key, value)):
        raise TypeError("only None, numbers, texts and tuples of them can be keys")
    pairs = [[_tagged(part, depth - 1, nodes_left) for part in pair] for pair in value.items()]
    return {"pairs": pairs}


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
    """The value without tags; the arguments are those of `_tagged`."""
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
        case {"pairs": [*pairs]}:
            return dict(_untagged_pair(pair, depth, nodes_left) for pair in pairs)
        case {"tensor": [str(dtype), [*shape], str(device), offset, [*_] | None as strides]}:
            return _leaf(dtype, shape, device, offset, strides)
        case {"object": [str(kind), parts]} if kind in _OBJECT_KINDS:
            return ObjectLeaf(kind, _untagged(parts, depth - 1, nodes_left))
        case dict():
            raise ProtocolError("an unknown tag")
    return tagged


def _untagged_pair(pair: Any, depth: int, nodes_left: Iterator[int]) -> tuple[Any, Any]:
    match pair:
        case [key, item]:
            found = _untagged(key, depth - 1, nodes_left)
            if _is_key(found):
                return found, _untagged(item, depth - 1, nodes_left)
    raise ProtocolError("a dict with another thing than pairs of a key and a value")


def _is_key(key: Any) -> bool:
    if type(key) is tuple:
        return all(map(_is_key, key))
    return key is None or type(key) in (bool, int, float, str)


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
    return text.encode("utf-8", "replace")[:MAX_TEXT_BYTES].decode("utf-8", "ignore")

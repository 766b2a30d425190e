"""Values as bytes, between judge and runner: a tagged binary form of bounded depth and size."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import Any

import attrs

from kernelrl_judge.protocol.frames import MAX_BODY_BYTES, ProtocolError

__all__ = ["DTYPES", "TensorLeaf", "decode_tree", "encode_tree", "leaves_of"]

_MAX_DEPTH = 16
_MAX_NODES = 4096
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
"""Dtypes that can travel; their place is their code."""


@attrs.frozen
class TensorLeaf:
    """A tensor in a value tree."""

    dtype: str
    shape: tuple[int, ...]
    device: str
    """`cpu`, `cuda`, or another device type."""
    offset: int
    """Byte offset of its contents in the shared file; -1 when they did not fit."""
    strides: tuple[int, ...] | None = None
    """In elements; None where it is contiguous, as outputs are."""

    @property
    def span(self) -> int:
        """Elements from its first to its last."""
        if 0 in self.shape:
            return 0
        if self.strides is None:
            return math.prod(self.shape)
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


def leaves_of(tree: Any) -> Iterator[TensorLeaf]:
    """The leaves of a tree, in its order."""
    if isinstance(tree, TensorLeaf):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from leaves_of(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from leaves_of(item)


def encode_tree(value: Any) -> bytes:
    """Tagged binary form of None, bool, int, float, str, list, tuple, dict with text keys, and `TensorLeaf`.

    Raises:
        TypeError: another type, an integer beyond 64 bits, or a tree too deep or too large.
    """
    out = bytearray()
    _encode(value, out, _MAX_DEPTH)
    if len(out) > MAX_BODY_BYTES:
        raise TypeError("the value is too large")
    return bytes(out)


def _encode(value: Any, out: bytearray, depth: int) -> None:
    if depth < 0:
        raise TypeError("the value is nested too deeply")
    # Exact types: a subclass could carry behaviour, and behaviour does not travel.
    kind = type(value)
    if value is None:
        out += b"n"
    elif kind is bool:
        out += b"b" + bytes([value])
    elif kind is int:
        if not -(2**63) <= value < 2**63:
            raise TypeError("an integer beyond 64 bits")
        out += b"i" + struct.pack("<q", value)
    elif kind is float:
        out += b"f" + struct.pack("<d", value)
    elif kind is str:
        text = value.encode("utf-8", "replace")[:_MAX_TEXT_BYTES]
        out += b"s" + struct.pack("<I", len(text)) + text
    elif kind in (list, tuple):
        out += (b"l" if kind is list else b"t") + struct.pack("<I", len(value))
        for item in value:
            _encode(item, out, depth - 1)
    elif kind is dict:
        out += b"d" + struct.pack("<I", len(value))
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError("only text can be a key")
            _encode(key, out, depth - 1)
            _encode(item, out, depth - 1)
    elif kind is TensorLeaf:
        device = value.device.encode()[:255]
        out += b"T" + bytes([DTYPES.index(value.dtype), len(value.shape)])
        out += struct.pack(f"<{len(value.shape)}q", *value.shape) + struct.pack("<q", value.offset)
        out += bytes([len(device)]) + device
        out += bytes([value.strides is not None])
        if value.strides is not None:
            out += struct.pack(f"<{len(value.shape)}q", *value.strides)
    else:
        raise TypeError(f"a value of type {kind.__name__} does not travel")


def decode_tree(body: bytes) -> Any:
    """The value that `encode_tree` wrote.

    Raises:
        ProtocolError: the bytes are not the form of one value.
    """
    reader = _Reader(body)
    value = reader.value(_MAX_DEPTH)
    if reader.place != len(body):
        raise ProtocolError("bytes after the value")
    return value


class _Reader:
    def __init__(self, body: bytes) -> None:
        self.body = body
        self.place = 0
        self.nodes = 0

    def take(self, count: int) -> bytes:
        end = self.place + count
        if end > len(self.body):
            raise ProtocolError("the value is cut off")
        part = self.body[self.place : end]
        self.place = end
        return part

    def number(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def value(self, depth: int) -> Any:
        self.nodes += 1
        if depth < 0 or self.nodes > _MAX_NODES:
            raise ProtocolError("the value is too deep or too large")
        tag = self.take(1)
        match tag:
            case b"n":
                return None
            case b"b":
                flag = self.take(1)[0]
                if flag > 1:
                    raise ProtocolError("a truth value is 0 or 1")
                return bool(flag)
            case b"i":
                return self.number("<q")
            case b"f":
                return self.number("<d")
            case b"s":
                return self.text(self.number("<I"))
            case b"l":
                return [self.value(depth - 1) for _ in range(self.count())]
            case b"t":
                return tuple(self.value(depth - 1) for _ in range(self.count()))
            case b"d":
                pairs = [(self.value(depth - 1), self.value(depth - 1)) for _ in range(self.count())]
                if not all(isinstance(key, str) for key, _ in pairs):
                    raise ProtocolError("only text can be a key")
                return dict(pairs)
            case b"T":
                return self.tensor()
        raise ProtocolError("an unknown tag")

    def count(self) -> int:
        count: int = self.number("<I")
        if count > _MAX_NODES:
            raise ProtocolError("the value is too large")
        return count

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode("utf-8")
        except UnicodeDecodeError:
            raise ProtocolError("a text that is not UTF-8") from None

    def tensor(self) -> TensorLeaf:
        code, dimensions = self.take(2)
        if code >= len(DTYPES) or dimensions > 64:
            raise ProtocolError("an unknown dtype or too many dimensions")
        shape = tuple(self.number("<q") for _ in range(dimensions))
        if any(size < 0 for size in shape):
            raise ProtocolError("a negative size")
        offset = self.number("<q")
        device = self.text(self.take(1)[0])
        marked = self.take(1)[0]
        if marked > 1:
            raise ProtocolError("a truth value is 0 or 1")
        strides = tuple(self.number("<q") for _ in range(dimensions)) if marked else None
        return TensorLeaf(DTYPES[code], shape, device, offset, strides)

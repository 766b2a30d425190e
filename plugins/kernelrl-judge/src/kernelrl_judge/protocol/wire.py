"""Frames between the main process and a judge, which trust each other: four bytes of length, then that much JSON."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

__all__ = ["LENGTH", "pack", "read", "unpack"]

LENGTH = struct.Struct("<I")


def pack(message: Any) -> bytes:
    """One frame."""
    body = json.dumps(message, ensure_ascii=True).encode()
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    """The message in the body of a frame."""
    return json.loads(body)


def read(stream: io.RawIOBase) -> Any | None:
    """The next message, or None at the end of the stream."""
    header = _exactly(stream, LENGTH.size)
    body = None if header is None else _exactly(stream, LENGTH.unpack(header)[0])
    return None if body is None else unpack(body)


def _exactly(stream: io.RawIOBase, count: int) -> bytes | None:
    data = b""
    while len(data) < count and (part := stream.read(count - len(data))):
        data += part
    return data if len(data) == count else None

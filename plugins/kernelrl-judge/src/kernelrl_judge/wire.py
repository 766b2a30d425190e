"""Frames between our process and a judge: a length of four bytes and that many bytes of JSON. Both sides are trusted."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

__all__ = ["LENGTH", "pack", "read", "unpack"]

LENGTH = struct.Struct("<I")


def pack(message: Any) -> bytes:
    """One frame."""
    body = json.dumps(message, ensure_ascii=True).encode()
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes) -> Any:
    """The message in the body of a frame."""
    return json.loads(body)


def read(stream: BinaryIO) -> Any | None:
    """The next message, or None at the end of the stream."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    return unpack(stream.read(LENGTH.unpack(header)[0]))

"""The data files that W&B writes in offline mode: protocol buffers in the log format of LevelDB.

W&B keeps the end of them in memory, so after a crash the file decides which steps W&B holds.
Format: https://github.com/google/leveldb/blob/main/doc/log_format.md, after a header of 7 bytes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError
from wandb.proto.wandb_internal_pb2 import Record

__all__ = ["last_value", "logged"]

_BLOCK = 32768
_HEADER = struct.Struct("<IHB")
"""Checksum, length and type of a part of a record."""
_ENDS = (1, 4)
"""Types of parts that end a record: the only part, the last part."""


def last_value(directory: Path, name: str) -> int:
    """The largest value logged under a name in the data files below a directory; -1 if there is none."""
    return max(
        (row[name] for path in directory.glob("*run-*/*.wandb") for row in logged(path) if name in row), default=-1
    )


def logged(path: Path) -> Iterator[dict[str, Any]]:
    """The values of each call of `log`, in order, up to the end of the intact data."""
    for data in _records(path.read_bytes()):
        try:
            record = Record.FromString(data)
        except DecodeError:
            return
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            yield {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


def _records(data: bytes) -> Iterator[bytes]:
    at, record = _HEADER.size, b""
    while at + _HEADER.size <= len(data):
        rest = _BLOCK - at % _BLOCK
        if rest < _HEADER.size:  # padding
            at += rest
            continue
        _, length, kind = _HEADER.unpack_from(data, at)
        at += _HEADER.size + length
        if at > len(data) or kind == 0:
            return
        record += data[at - length : at]
        if kind in _ENDS:
            yield record
            record = b""

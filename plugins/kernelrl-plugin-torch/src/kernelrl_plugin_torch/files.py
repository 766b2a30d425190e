"""Files that are on the disk when the call returns."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["read_tensors", "sync", "write_tensors", "write_text"]


def write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    sync(path)


def write_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Save tensors, numbers and text in plain containers."""
    torch.save(dict(content), path)
    sync(path)


def read_tensors(path: Path) -> Any:
    """Read what `write_tensors` wrote; nothing in the file is executed."""
    return torch.load(path, map_location="cpu", weights_only=True)


def sync(path: Path) -> None:
    """Force a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

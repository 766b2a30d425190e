"""Files of tensors, synchronised to disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelrl_core.api.config import sync_to_disk

__all__ = ["read_tensors", "write_tensors"]


def write_tensors(path: Path, content: Mapping[str, Any]) -> None:
    """Save tensors, numbers and strings in plain containers; the data is on disk on return.

    Raises:
        OSError: the disk is full, broken or read-only.
    """
    # Not the path: torch's own writer does not report why a write failed.
    with path.open("wb") as stream:
        try:
            torch.save(dict(content), stream)
        except RuntimeError as error:
            # torch ends its archive after a failed write, and raises the error of that.
            if isinstance(error.__context__, OSError):
                raise error.__context__ from None
            raise
    sync_to_disk(path)


def read_tensors(path: Path) -> Any:
    """The content of a file of `write_tensors`, on the CPU; no code in the file is executed."""
    return torch.load(path, map_location="cpu", weights_only=True)

"""Files of tensors, synchronised to disk, and models in the format of Hugging Face."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kernelrl_core.api.config import sync_to_disk

__all__ = ["read_tensors", "save_pretrained", "write_tensors"]


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


def save_pretrained(module: Any, directory: Path) -> None:
    """Write a model or adapters of Hugging Face into an existing directory.

    Raises:
        OSError: the disk is full, broken or read-only.
    """
    from safetensors import SafetensorError

    try:
        module.save_pretrained(directory)
    except SafetensorError as error:
        # The system's error is in the text only.
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(directory)) from error


def read_tensors(path: Path) -> Any:
    """The content of a file of `write_tensors`, on the CPU; no code in the file is executed."""
    return torch.load(path, map_location="cpu", weights_only=True)

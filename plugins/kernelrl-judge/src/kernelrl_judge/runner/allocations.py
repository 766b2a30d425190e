"""Preparation of memory that a candidate allocates: poisoned memory for trials, usual memory for timed calls."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Sequence

import torch

from kernelrl_judge.protocol.values import TensorLeaf

__all__ = ["fill_fresh_memory", "poison_device", "take_at_once"]

_M_PERTURB = -6
"""`M_PERTURB` of `mallopt`: allocated memory is filled with the complement of a byte, unless that byte is 0."""


def fill_fresh_memory(byte: int | None) -> None:
    """Have host memory that is allocated from now on filled with a byte other than 255; None: left as it is.

    A block below 1 KiB may come unfilled from glibc's cache of a thread.
    Torch has a setting for that, which a candidate could read to find out whether its calls are timed.
    """
    # Only glibc has `mallopt`.
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_PERTURB, 0 if byte is None else byte ^ 0xFF)


def take_at_once(leaves: Sequence[TensorLeaf]) -> None:
    """Have torch allocate the device memory for tensors like these in one block instead of hundreds."""
    count = sum(math.prod(leaf.shape) * getattr(torch, leaf.dtype).itemsize for leaf in leaves)
    with contextlib.suppress(torch.OutOfMemoryError):
        torch.empty(count, dtype=torch.uint8, device="cuda")


def poison_device(byte: int, sizes: Sequence[int]) -> None:
    """Fill device memory of these sizes with a byte and free it."""
    with contextlib.suppress(torch.OutOfMemoryError):
        # Two blocks of each size: a call may allocate an intermediate result of the size of its output.
        blocks = [torch.full((max(size, 1),), byte, dtype=torch.uint8, device="cuda") for size in (*sizes, *sizes)]
        del blocks

"""Programs of a launch that read what others of it wrote: right in Triton's interpreter, which runs one after another.

On a device programs run at the same time, in any order. Who reads there what another program stores may find it or not,
unless both have met at an atomic operation (a lock, or a counter of those that are done). Which program stored an
element last is written down at each plain store that changes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import numpy as np
import torch

__all__ = ["Launch"]


@attrs.define
class _Written:
    begin: int
    end: int
    shift: int
    """An element has two to the power of this bytes."""
    writers: Any
    """Of each element the number of the program that stored it last; 0 for none."""


class Launch:
    """What the programs of one launch did so far.

    Args:
        tensors: that it was given. What lies elsewhere is not looked at.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.raced = 0
        """Elements that a program has read, and that another had written."""
        self._memory: dict[int, int] = {}
        with torch._C.DisableTorchFunction():
            for storage in (tensor.untyped_storage() for tensor in tensors):
                self._memory[storage.data_ptr()] = storage.nbytes()
        self._written: dict[int, _Written] = {}
        self._met: set[int] = set()

    def met(self, program: int) -> None:
        """A program, counted from 1, made an atomic operation."""
        self._met.add(program)

    def stored(self, program: int, places: Any, before: Any, values: Any) -> None:
        """A program stores values where others were before, all of one dimension."""
        if not places.size:
            return
        written = self._at(places, values.itemsize)
        if written is None:
            return
        at = (places - np.uint64(written.begin)) >> np.uint64(written.shift)
        bits = np.dtype(f"u{values.itemsize}")
        changed = before.view(bits) != values.view(bits)
        # Who stores what is there already may read it.
        written.writers[at[changed | (written.writers[at] != 0)]] = program

    def loaded(self, program: int, places: Any, mask: Any) -> None:
        """A program loads from places, as far as a mask has it."""
        places = np.atleast_1d(places)[np.atleast_1d(mask).astype(bool)] if self._written else np.empty(0)
        if not places.size:
            return
        least, most = int(places.min()), int(places.max())
        for written in self._written.values():
            if least < written.begin or most >= written.end:
                continue
            writers = written.writers[(places - np.uint64(written.begin)) >> np.uint64(written.shift)]
            others = (writers != 0) & (writers != program)
            if program in self._met:
                others &= ~np.isin(writers, [*self._met])
            self.raced += int(others.sum())

    def _at(self, places: Any, itemsize: int) -> _Written | None:
        least, most = int(places.min()), int(places.max())
        begin = next((begin for begin, size in self._memory.items() if begin <= least and most < begin + size), None)
        if begin is None:
            return None
        if begin not in self._written:
            size, shift = self._memory[begin], itemsize.bit_length() - 1
            writers = np.zeros((size >> shift) + 1, dtype=np.int32)
            self._written[begin] = _Written(begin, begin + size, shift, writers)
        return self._written[begin]

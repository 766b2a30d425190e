"""One worked kernel of a corpus."""

from __future__ import annotations

import attrs

__all__ = ["Record", "Skipped"]


@attrs.frozen
class Record:
    """A PyTorch reference and a kernel that computes it, in the form of our prompts."""

    id: str
    """Unique within an index: the corpus and the key of the row, such as `kernelbook/17`."""
    reference: str
    """Source with `Model`, and with `get_inputs` and `get_init_inputs` where the corpus has them."""
    kernel: str
    """Source of a file that defines `ModelNew`."""
    backend: str
    """Name of the backend of the kernel, such as `triton`."""
    name: str = ""
    """Short name of the operation."""
    origin: str = ""
    """Corpus and revision, such as `kernelbook@1576375b`."""
    level: int | None = None
    """KernelBench level; None if the corpus has no levels."""
    speedup: float | None = None
    """Measured speedup over PyTorch eager, as the corpus states it; None if it was not measured."""
    correct: bool = True
    """Whether the corpus states that the kernel is correct."""
    licence: str = ""
    """SPDX name of the licence of the row."""


@attrs.frozen
class Skipped:
    """A row that an index excludes."""

    id: str
    """Key of the row, as in `Record.id`."""
    reason: str
    """Reason in a few words, without values: the same text for every row with this reason."""
    detail: str = ""
    """Values, such as the column or the line."""

"""Base class of the corpora."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kernelrl_plugin_raicl.record import Record, Skipped

__all__ = ["Corpus", "Filters"]


@attrs.frozen
class Filters:
    """Which rows of a corpus to read."""

    backend: str = ""
    """Only kernels of this backend; empty: all."""
    levels: frozenset[int] = frozenset()
    """Only these KernelBench levels, and rows without a level; empty: all."""
    include_incorrect: bool = False
    """Also rows whose kernel the corpus calls incorrect."""

    def takes_level(self, level: int | None) -> bool:
        """Whether rows of a level are read."""
        return not self.levels or level is None or level in self.levels


class Corpus(ABC):
    """A corpus that was found. Opening it reads no rows."""

    @abstractmethod
    def records(self) -> Iterator[Record | Skipped]:
        """Every row, in the order of the corpus: equal calls yield equal values. Never executes corpus code."""

    @abstractmethod
    def manifest(self) -> Mapping[str, Any]:
        """`name`, `revision`, `licence` and `source` as plain data; `revision` changes with the content."""

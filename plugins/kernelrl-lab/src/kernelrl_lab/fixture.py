"""What a fixture of the lab is: an attack or an honest kernel, its task, and how it has to end."""

from __future__ import annotations

from typing import Literal

import attrs

__all__ = ["Expected", "Fixture"]

Expected = Literal["hacked", "incorrect", "rejected", "honest_time", "correct"]


@attrs.frozen
class Fixture:
    """A candidate whose right verdict is known."""

    id: str
    """Row of the taxonomy and backend, such as `A2-triton`; a third part tells several of a row apart."""
    summary: str
    """What it does, in a sentence."""
    backend: Literal["triton", "cpp", "cuda"]
    task: str
    """Reference in KernelBench's format."""
    candidate: str
    """Source that defines `ModelNew`."""
    expected: Expected
    """How it ends at best. `honest_time`: the trick has no effect; `correct`: the kernel is honest."""
    where: Literal["cpu", "gpu"] = "cpu"
    """What it needs to run. Triton runs in its interpreter on the processor."""
    most_speedup: float | None = None
    """Largest speedup that is true; a larger one was obtained by the trick. None: its time is not in question."""
    times: int = 1
    """Judged this many times in a row, of which the last one counts: for what one evaluation leaves to the next."""

    @property
    def row(self) -> str:
        """Row of the taxonomy, such as `A2`."""
        return self.id.partition("-")[0]

    @property
    def clean(self) -> bool:
        """Whether the kernel is honest."""
        return self.expected == "correct"

"""Inputs that no draw makes and a task may single out, for the probe `stress`.

`coincidences` holds numbers that the reference compares others with, and exact halves where it rounds. `faint` and
`zeros` are small and zero everywhere at once, where every output depends on all of an input: elsewhere a slice of
`edges` shows the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import attrs
import torch

from kernelrl_judge.probes.stress_bounds import Bounds

__all__ = ["LOOSENED", "MOST_NUMBERS", "Coincidences", "loosened", "sprinkled"]

LOOSENED = ("coincidences", "twins", "zeros")
"""Parts whose errors say nothing about the precision of a kernel."""

_RARE = 1 / 32
"""Share of the elements that a number takes the place of, at most."""
_MOST_PLACES = 1 / 2
"""Share of those that all numbers take the place of."""
MOST_NUMBERS = 64
"""Numbers that a reference names, of which inputs are given the smallest."""
_PARTS_OF_ONE = 8.0
"""Multiples of an eighth are halves of whole numbers of quarters, too: a task may multiply before it rounds."""
_CANCELLED = 1e-2
"""Of the root mean square of an output: what an honest kernel may be off where equal rows cancel, as distances from
products do."""


@attrs.frozen
class Coincidences:
    """What is made in the inputs of a task."""

    numbers: tuple[float, ...] = ()
    """That the reference compares others with."""
    rounds: bool = False
    """Whether halves are made."""

    def __bool__(self) -> bool:
        return bool(self.numbers) or self.rounds

    @classmethod
    def of(cls, compared: Iterable[float], *, rounds: bool) -> Coincidences:
        """Of all numbers that a reference compares with those that are not zero; zeros stand at the edges."""
        numbers = sorted({number for number in compared if number and math.isfinite(number)}, key=abs)
        return cls(tuple(numbers[:MOST_NUMBERS]), rounds)

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """An input with them."""
        kinds = torch.rand_like(tensor, dtype=torch.float32)
        if self.rounds:
            eighths = (tensor * _PARTS_OF_ONE).round() / _PARTS_OF_ONE
            tensor = torch.where(kinds >= 0.5, eighths, tensor)
        return sprinkled(tensor, _exact(self.numbers, tensor.dtype), kinds)

    def are_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """Which elements are such numbers: what a last bit makes of them says nothing."""
        found = torch.zeros_like(tensor, dtype=torch.bool)
        for number in _exact(self.numbers, tensor.dtype):
            found |= tensor == number
        if self.rounds:
            found |= (tensor * _PARTS_OF_ONE).frac() == 0
        return found


def sprinkled(tensor: torch.Tensor, numbers: Iterable[float], kinds: torch.Tensor) -> torch.Tensor:
    """A tensor with each number in the place of a few of its elements.

    Args:
        kinds: uniform numbers below one, of its shape.
    """
    named = [*numbers]
    share = min(_RARE, _MOST_PLACES / max(1, len(named)))
    for place, number in enumerate(named):
        tensor = torch.where((kinds >= place * share) & (kinds < (place + 1) * share), number, tensor)
    return tensor


def _exact(numbers: Sequence[float], dtype: torch.dtype) -> list[float]:
    """Those that are the same in single and in double precision."""
    return [number for number in numbers if torch.tensor(number, dtype=dtype).item() == number]


def loosened(part: str, limit: Bounds, exact: torch.Tensor) -> Bounds:
    """How far an output may be off in a part that is about numbers that are not finite, or far off."""
    if part == "zeros":
        # What is zero exactly may be next to nothing as well.
        return attrs.evolve(limit, scale=torch.ones_like(limit.scale))
    if part == "twins":
        sizes = torch.where(torch.isfinite(exact), exact, 0.0)
        return attrs.evolve(limit, noise=limit.noise + _CANCELLED * float(sizes.square().mean().sqrt()))
    return limit

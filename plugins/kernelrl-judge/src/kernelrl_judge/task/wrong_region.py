"""The region that the wrong elements of an output form: a tail, a column, a stride, a block, everything."""

from __future__ import annotations

import math
from typing import Any

import attrs
import torch

__all__ = ["WrongRegion", "places_of_ranks", "spread_places", "wrong_region"]

_NEARLY_ALL = 0.98
"""Share of wrong elements above which a region needs no description."""
_FULL = 0.9
"""Share of wrong elements in a region above which it counts as wrong as a whole."""
_MAX_TRIANGLE = 1 << 24
_LISTED_AT_ONCE = 1 << 22
"""Elements whose wrong ones are listed at once: a list takes eight bytes for each."""
_LEAST_REPEATS = 3
"""Smallest number of repetitions of a pattern."""
_PERIODS = tuple(2**power for power in range(2, 13))
"""Periods that are tried: sizes of blocks."""


@attrs.frozen
class WrongRegion:
    """A region of an output."""

    pattern: Any
    """Value of `Mismatch.pattern`."""
    text: str
    """Words for it."""
    size: int = 0
    """Length of the axis along which the region is a part; 0: there is no single axis."""
    first: int = 0
    """First wrong index along that axis."""
    last: int = 0
    """Last wrong index along that axis."""


@attrs.frozen
class _Axis:
    """Wrong places along one axis, or in memory order."""

    is_wrong: torch.Tensor
    """[size] truth value of each place."""
    n_places: int
    first: int
    last: int
    one: str
    """Word for one place."""
    many: str
    suffix: str

    @classmethod
    def of(cls, is_wrong: torch.Tensor, one: str, many: str, suffix: str = "") -> _Axis:
        """The axis with these wrong places, of which there is at least one."""
        numbers = is_wrong.to(torch.uint8)
        last = len(numbers) - 1 - int(numbers.flip(0).argmax())
        return cls(is_wrong, int(is_wrong.sum()), int(numbers.argmax()), last, one, many, suffix)

    @property
    def size(self) -> int:
        return len(self.is_wrong)

    @property
    def is_whole(self) -> bool:
        return self.n_places == self.size

    def region(self) -> WrongRegion:
        """The places in words."""
        pattern, text = self._named()
        return WrongRegion(pattern, text + self.suffix, self.size, self.first, self.last)

    def span(self) -> WrongRegion:
        """All places from the first to the last in words."""
        pattern, text = self._consecutive()
        return WrongRegion(pattern, text + self.suffix, self.size, self.first, self.last)

    def _named(self) -> tuple[str, str]:
        first, last, n_places = self.first, self.last, self.n_places
        if last - first + 1 == n_places:
            return self._consecutive()
        step = 1 + int(self.is_wrong[first + 1 :].to(torch.uint8).argmax())
        on_steps = self.is_wrong[first : last + 1 : step]
        if n_places >= _LEAST_REPEATS and len(on_steps) == n_places and bool(on_steps.all()):
            end = "" if last + step >= self.size else f" to {last}"
            every = "every second" if step == 2 else f"every {_ordinal(step)}"
            return "stride", f"{every} {self.one} from {first} on{end} ({n_places} of {self.size})"
        repeated = self._repeated()
        if repeated:
            return "stride", repeated
        return "scattered", f"{n_places} of {self.size} {self.many}"

    def _consecutive(self) -> tuple[str, str]:
        n_places = self.last - self.first + 1
        if self.last == self.size - 1 and self.first:
            return "tail", self._part("last", n_places)
        if not self.first:
            return "head", self._part("first", n_places)
        if n_places == 1:
            return "single", f"{self.one} {self.first}"
        return "range", f"{self.many} {self.first} to {self.last} of {self.size}"

    def _part(self, word: str, n_places: int) -> str:
        return f"the {word} {self.one}" if n_places == 1 else f"the {word} {n_places} of {self.size} {self.many}"

    def _repeated(self) -> str:
        """The same places of each block; empty if they do not repeat."""
        for period in _PERIODS:
            if self.size < _LEAST_REPEATS * period:
                break
            residues = self._residues(period)
            n_residues = len(residues)
            if 2 * n_residues > period:
                continue
            n_such = sum(len(range(residue, self.size, period)) for residue in residues)
            if self.n_places < _FULL * n_such:
                continue
            low, high = residues[0], residues[-1]
            if high - low + 1 != n_residues:
                return f"{n_residues} of every {period} {self.many}"
            if high == period - 1:
                return f"the last {n_residues} of every {period} {self.many}"
            if not low:
                return f"the first {n_residues} of every {period} {self.many}"
            return f"places {low} to {high} of every {period} {self.many}"
        return ""

    def _residues(self, period: int) -> list[int]:
        """The remainders of the places divided by a period, ascending."""
        n_whole = self.size // period * period
        found = self.is_wrong[:n_whole].view(-1, period).any(0)
        found[: self.size - n_whole] |= self.is_wrong[n_whole:]
        residues: list[int] = found.nonzero().flatten().tolist()
        return residues


def wrong_region(wrong: torch.Tensor) -> WrongRegion:
    """The region of wrong elements.

    Args:
        wrong: truth value of each element, of which at least one is true.
    """
    n_wrong, n_elements = int(wrong.sum()), wrong.numel()
    if n_wrong == n_elements:
        return WrongRegion("all", "all of them")
    axes = _axes(wrong)
    restricted = [axis for axis in axes if not axis.is_whole]
    box_share = n_wrong / math.prod(axis.n_places for axis in axes)
    diagonal = _beside_the_diagonal(wrong, n_wrong) if box_share < _FULL else None
    if diagonal is not None:
        return diagonal
    if not restricted and n_wrong >= _NEARLY_ALL * n_elements:
        return WrongRegion("all", "nearly all of them")
    flat = _in_memory_order(wrong, n_wrong, box_share)
    if flat is not None:
        return flat
    if not restricted:
        return WrongRegion("scattered", "scattered over the whole output")
    regions = [axis.region() for axis in restricted]
    named = [region for region in regions if region.pattern != "scattered"]
    if not named:
        return WrongRegion("scattered", "scattered over " + " and ".join(region.text for region in regions))
    text = ", in ".join(region.text for region in named)
    if box_share < _FULL:
        text = f"{100 * box_share:.2g} % of the elements in {text}"
    return attrs.evolve(named[0], text=text) if len(named) == 1 else WrongRegion("block", text)


def spread_places(wrong: torch.Tensor, most: int) -> torch.Tensor:
    """Places of wrong elements in memory order, spread evenly over all of them. On the CPU."""
    n_wrong = int(wrong.sum())
    return places_of_ranks(wrong, torch.linspace(0, n_wrong - 1, min(most, n_wrong)).round().long())


def places_of_ranks(wrong: torch.Tensor, ranks: torch.Tensor) -> torch.Tensor:
    """Places in memory order of the wrong elements with these numbers, counted from 0.

    Args:
        ranks: ascending, on the CPU.
    """
    found = []
    n_before = 0
    for number, part in enumerate(torch.split(wrong.flatten(), _LISTED_AT_ONCE)):
        n_wrong = int(part.sum())
        here = ranks[(ranks >= n_before) & (ranks < n_before + n_wrong)]
        if len(here):
            places = part.nonzero().flatten().cpu()
            found.append(places[here - n_before] + number * _LISTED_AT_ONCE)
        n_before += n_wrong
    return torch.cat(found)


def _axes(wrong: torch.Tensor) -> list[_Axis]:
    found = []
    n_axes = wrong.dim()
    for number in range(n_axes):
        others = tuple(other for other in range(n_axes) if other != number)
        touched = wrong.any(dim=others) if others else wrong
        one, many, suffix = _words(number, n_axes)
        found.append(_Axis.of(touched, one, many, suffix))
    return found


def _words(axis: int, n_axes: int) -> tuple[str, str, str]:
    """Words for one place and for several along an axis, and the suffix that names it."""
    if n_axes == 1:
        return "element", "elements", ""
    if n_axes == 2:
        return ("row", "rows", "") if axis == 0 else ("column", "columns", "")
    return "index", "indices", f" of axis {axis}"


def _in_memory_order(wrong: torch.Tensor, n_wrong: int, box_share: float) -> WrongRegion | None:
    """A region of consecutive or repeating places in memory, where axes describe it less well."""
    if wrong.dim() < 2:
        return None
    flat = _Axis.of(wrong.flatten(), "element", "elements")
    share = n_wrong / (flat.last - flat.first + 1)
    is_part = flat.first > 0 or flat.last < flat.size - 1
    if is_part and share >= _FULL and share > box_share:
        region = flat.span()
    elif box_share >= _FULL or n_wrong < _LEAST_REPEATS:
        return None
    else:
        region = flat.region()
        if region.pattern != "stride":
            return None
    return attrs.evolve(region, text=f"{region.text}, in memory order")


def _beside_the_diagonal(wrong: torch.Tensor, n_wrong: int) -> WrongRegion | None:
    """A triangle of the last two axes."""
    if wrong.dim() < 2 or wrong.shape[-1] * wrong.shape[-2] > _MAX_TRIANGLE or min(wrong.shape[-2:]) < 4:
        return None
    touched = wrong.flatten(0, -3).any(0) if wrong.dim() > 2 else wrong
    rows, columns = touched.nonzero(as_tuple=True)
    if not bool((columns > rows).any()) or not bool((columns < rows).any()):
        n_others = wrong[..., 0, 0].numel()
        n_rows, n_columns = touched.shape
        ones = torch.ones(n_rows, n_columns, dtype=torch.bool)
        above, below = ones.triu(1), ones.tril(-1)
        on = bool((columns == rows).any())
        if bool((columns > rows).any()):
            places, text = (ones.triu(), "on and above the diagonal") if on else (above, "above the diagonal")
        elif bool((columns < rows).any()):
            places, text = (ones.tril(), "on and below the diagonal") if on else (below, "below the diagonal")
        else:
            places, text = ~(above | below), "on the diagonal"
        if n_wrong >= _FULL * n_others * int(places.sum()):
            axes = "" if wrong.dim() == 2 else " of the last two axes"
            return WrongRegion("diagonal", text + axes)
    return None


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"

"""Six families of harder inputs. Each changes the inputs that a task draws, within their domains.

Shapes, dtypes, strides and inputs with a structure remain. `kernelrl_judge.probes.stress` decides where a family
applies.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from kernelrl_judge.protocol.trees import laid_out_as, mapped, tensors
from kernelrl_judge.task.domain import Domain

__all__ = ["FAMILIES", "VARIANTS", "harder", "is_within_range", "nudged", "within_range"]

FAMILIES = {
    "scale": "rows of other sizes and signs",
    "rounding": "numbers that narrow types always round down",
    "ties": "equal numbers and rows, halves, or rows of equal truth values",
    "boundaries": "large numbers in the first and last places, or the ends of a range",
    "zeros": "zeros",
    "extremes": "a few numbers near the overflow of exp, or NaN and infinities where the domain has them",
}
"""Each family with the words of its evidence."""
VARIANTS = {"scale": 3, "rounding": 1, "ties": 3, "boundaries": 3, "zeros": 1, "extremes": 2}
"""Number of variants; a later one is tried where the reference is not well conditioned under the earlier ones."""
_OCTAVES = ((-9.0, 6.0), (-2.0, 6.0), (-2.0, 2.0))
_EDGES = (64.0, 8.0, 1.0)
_SPIKES = (100.0, 16.0)
"""The exponential of 100 overflows in single precision, that of 16 in fp16."""
_RARE = 1 / 64
_LOW_BITS, _ROUNDED_DOWN = 0xFFFF, 0x0FFF
"""Bits that bf16, tf32 and fp16 drop, and a value of them that each rounds down by most of its error."""
_LEAST_ALONG = 4
_LAST_BIT = 2.0**-23
_SAME_FACTOR = 1 + 2.0**-21
_RANGE_MARGIN = 0.02
"""Share of the range of the drawn numbers by which rounding may exceed it."""


def harder(values: list[Any], domains: list[Domain], family: str, variant: int = 0) -> list[Any] | None:
    """The inputs under a family; None if it changes nothing of them."""
    places = iter(domains)
    before: dict[torch.Size, torch.Tensor] = {}
    changes = False

    def change(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal changes
        domain = next(places)
        if not tensor.numel():
            return tensor
        match domain.kind:
            case "numbers" if tensor.element_size() > 1:
                found = _numbers(tensor, domain, family, variant, before)
                inside = (found >= domain.low) & (found <= domain.high)
                found = torch.where(inside | ~torch.isfinite(found), found, tensor).to(tensor.dtype)
            case "integers":
                found = _integers(tensor, domain, family)
            case "truth":
                found = _truth(tensor, empty=variant < 2) if family == "ties" else tensor
            case _:
                found = tensor
        changes |= found is not tensor and not torch.equal(found, tensor)
        return laid_out_as(found, tensor)

    found = [mapped(value, change) for value in values]
    return found if changes else None


def nudged(values: list[Any], domains: list[Domain], family: str, variant: int) -> list[Any]:
    """The inputs with other last bits, where that is in the domain: a well-conditioned task hardly changes.

    Equal numbers remain equal, and halves remain halves.
    """
    places = iter(domains)

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        domain = next(places)
        if domain.kind != "numbers" or domain.bounded or tensor.dtype is not torch.float32:
            return tensor
        if family == "ties":
            return tensor if variant else tensor * _SAME_FACTOR
        return tensor * (1 + (torch.rand_like(tensor) * 2 - 1) * _LAST_BIT)

    return [mapped(value, lambda tensor: laid_out_as(nudge(tensor), tensor)) for value in values]


def is_within_range(drawn: list[Any], values: list[Any], domains: list[Domain]) -> bool:
    """Whether changed inputs are within the range of the task: in the domain that it declares, or between the smallest
    and the largest number that it draws."""
    triples = zip(tensors(drawn), tensors(values), domains, strict=True)
    return all(domain.is_declared or _is_between(before, after) for before, after, domain in triples)


def within_range(drawn: list[Any], values: list[Any], domains: list[Domain]) -> list[Any]:
    """Changed inputs, moved into the range of the task: numbers beyond what it draws become the nearest ones."""
    before = iter(zip(tensors(drawn), domains, strict=True))

    def move(tensor: torch.Tensor) -> torch.Tensor:
        given, domain = next(before)
        if domain.is_declared or not tensor.is_floating_point() or not tensor.numel():
            return tensor
        return laid_out_as(tensor.clamp(given.min(), given.max()), tensor)

    return [mapped(value, move) for value in values]


def _is_between(before: torch.Tensor, after: torch.Tensor) -> bool:
    if not before.is_floating_point() or before.element_size() == 1 or not before.numel():
        # Integers and truth values keep the limits from which they are drawn; no family changes float8 kinds.
        return True
    if torch.equal(before, after):
        return True
    low, high = before.double().min(), before.double().max()
    margin = _RANGE_MARGIN * (high - low)
    found = after.double()
    return bool(((found >= low - margin) & (found <= high + margin)).all())


def _numbers(
    tensor: torch.Tensor, domain: Domain, family: str, variant: int, before: dict[torch.Size, torch.Tensor]
) -> torch.Tensor:
    match family:
        case "scale":
            return _scaled(tensor, *_OCTAVES[variant], negative=variant == 1)
        case "rounding":
            return _rounded_down(tensor)
        case "ties":
            return tensor if variant == 2 else _tied(tensor, before, rows=not variant)
        case "boundaries":
            return _ends(tensor, domain) if domain.bounded else _edged(tensor, _EDGES[variant])
        case "zeros":
            return torch.zeros_like(tensor)
    if domain.special:
        kinds = torch.randint(0, 32, tensor.shape, device=tensor.device)
        for kind, number in enumerate((float("nan"), float("inf"), -float("inf"))):
            tensor = torch.where(kinds == kind, number, tensor)
        return tensor
    return _spiked(tensor, _SPIKES[variant])


def _scaled(tensor: torch.Tensor, low: float, high: float, *, negative: bool) -> torch.Tensor:
    """Each row times a power of two; a quarter of the rows negative, a quarter positive, the others of both signs."""
    shape = (*tensor.shape[:-1], 1) if tensor.dim() > 1 else tensor.shape
    factors = torch.exp2((low + (high - low) * torch.rand(shape, device=tensor.device)).round()).to(tensor.dtype)
    scaled = tensor * factors
    if negative:
        return -scaled.abs()
    found = torch.where(torch.rand_like(scaled, dtype=torch.float32) < 0.5, scaled, -scaled)
    if tensor.dim() < 2:
        return found
    quarter = tensor.shape[0] // 4
    found[:quarter] = -scaled[:quarter].abs()
    found[quarter : 2 * quarter] = scaled[quarter : 2 * quarter].abs()
    return found


def _rounded_down(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is not torch.float32:
        return tensor
    moved = (tensor.contiguous().view(torch.int32) & ~_LOW_BITS) | _ROUNDED_DOWN
    return torch.where(tensor == 0, tensor, moved.view(torch.float32))


def _tied(tensor: torch.Tensor, before: dict[torch.Size, torch.Tensor], *, rows: bool) -> torch.Tensor:
    """Multiples of an eighth of the spread.

    Args:
        rows: a quarter of the rows equals the row above. An input of the shape of an earlier one has half of its rows,
            one number of which may differ.
    """
    rows &= tensor.dim() > 1
    if rows and tensor.shape in before:
        found = tensor.clone()
        found[::2] = before[tensor.shape][::2]
        found[::4].select(-1, -1).add_(1)
        return found
    spread = float(tensor.float().std(correction=0))
    step = 2.0 ** round(math.log2(spread)) / 8 if spread > 0 else 1.0
    found = (tensor / step).round() * step
    if rows:
        above = found[1::4].clone()
        found[2::4] = above[: len(found[2::4])]
    before.setdefault(tensor.shape, found)
    return found


def _edged(tensor: torch.Tensor, factor: float) -> torch.Tensor:
    """The first and the last slice along each axis times a factor."""
    is_edge = torch.zeros(tensor.shape, dtype=torch.bool, device=tensor.device)
    for axis, size in enumerate(tensor.shape):
        if size >= _LEAST_ALONG:
            is_edge.select(axis, 0).fill_(True)
            is_edge.select(axis, size - 1).fill_(True)
    return torch.where(is_edge, tensor * factor, tensor)


def _ends(tensor: torch.Tensor, domain: Domain) -> torch.Tensor:
    """An eighth of the numbers is the smallest of the range, an eighth the largest, and some are further values."""
    kinds = torch.randint(0, 8, tensor.shape, device=tensor.device)
    found = torch.where(kinds == 0, domain.low, torch.where(kinds == 1, domain.high, tensor))
    return _with_further(found, domain)


def _spiked(tensor: torch.Tensor, largest: float) -> torch.Tensor:
    """One number of each row, and a few more, with a large size and either sign."""
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() else tensor.reshape(1, 1)
    chosen = torch.rand(rows.shape, device=tensor.device)
    is_spike = (chosen < _RARE) | (chosen == chosen.amin(1, keepdim=True))
    sizes = largest * (0.9 + 0.2 * torch.rand(rows.shape, device=tensor.device))
    signs = torch.where(torch.rand(rows.shape, device=tensor.device) < 0.25, -1.0, 1.0)
    return torch.where(is_spike, (signs * sizes).to(tensor.dtype), rows).view(tensor.shape)


def _integers(tensor: torch.Tensor, domain: Domain, family: str) -> torch.Tensor:
    flat = tensor.reshape(-1)
    if family == "ties":
        return flat[torch.randint(0, min(3, len(flat)), tensor.shape, device=tensor.device)]
    if family != "boundaries":
        return tensor
    found = tensor.clone()
    rows = found if found.dim() and found.shape[0] > 2 else found.view(-1)
    third = -(-len(rows) // 3)
    rows[:third] = int(domain.high)
    rows[third : 2 * third] = int(domain.low)
    return _with_further(found, domain)


def _with_further(tensor: torch.Tensor, domain: Domain) -> torch.Tensor:
    flat = tensor.contiguous().view(-1)
    for place, value in enumerate(domain.also):
        flat[place :: 4 * len(domain.also)] = value
    return flat.view(tensor.shape)


def _truth(tensor: torch.Tensor, *, empty: bool) -> torch.Tensor:
    """A third of the rows all true, and with `empty` a third all false."""
    if tensor.dim() < 2 or len(tensor) < 3:
        return tensor
    found = tensor.clone()
    third = len(found) // 3
    found[:third] = True
    if empty:
        found[third : 2 * third] = False
    return found

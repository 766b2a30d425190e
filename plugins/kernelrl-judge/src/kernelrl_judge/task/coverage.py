"""Inputs whose regions have clearly different levels, so that a kernel that reads a part of an input is wrong.

The mean of half of a drawn input is close to the mean of all of it, and in half precision within the tolerance. In some
trials the numbers of each input are therefore moved to levels within the range that the task draws, along one axis of
each input. A region is a part of an axis: the second half, the tail, every second element, every second block. The
levels are weighted so that each region moves the output of the reference by as many tolerances as the others.

Integers, truth values and inputs with a structure stay as drawn.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.trees import laid_out_as, leaves, mapped, reals, tensors
from kernelrl_judge.task.comparison import Tolerance, as_rows, compare_values, element_scales, tolerance
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.precision import rounding_unit
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.regions import MIN_AXIS, Coverage, Region
from kernelrl_judge.task.source import TaskError

__all__ = ["covered_inputs", "measured_coverage"]

_MAX_REGIONS = 48
_LEVEL_SHARE = 0.75
"""Share of the range for levels; the rest is for the drawn values around them."""
_SPAN = 1.6
"""Distance of the largest level from the smallest, which is at one end of the range from -1 to 1. Levels whose mean is
that of the range, or that are symmetric around it, would hide a constant in place of a sum, or a part of a square."""
_MAX_DEVIATIONS = 2.0
"""Half of the range of levels in standard deviations of the drawn values, and at most their own range."""
_MOVED_TOLERANCES = 10.0
"""Movement of the output that the level of a region is to cause."""
_MIN_WEIGHT = 1 / 64
"""Smallest share of the range for a region, also where integers of the output change."""
_MIN_MOVED_TOLERANCES = 1.0
"""Smaller movement at the full range: the reference ignores the region."""
_ROUNDED_FACTOR = 4.0
"""Multiple of the tolerance by which errors of half precision in the inputs may move the output."""
_CONDITIONED_SHARE = 0.5
"""Largest share of the tolerance by which the reference may differ from double precision."""


def covered_inputs(reference: Reference, index: int, weights: Mapping[Region, float]) -> list[Any]:
    """Drawn inputs of a call with levels of regions, in directions that depend on the seed.

    Args:
        weights: of one covered trial (`Coverage.of_trial`).
    """
    directions = random.Random(f"{reference.seed} {index} directions")
    inputs = reference.inputs(index)
    first_sign = directions.choice((-1.0, 1.0))
    # Opposite directions in successive inputs: levels would cancel in their difference otherwise.
    signs = [first_sign if number % 2 else -first_sign for number in range(len(tensors(inputs)))]
    return _at_levels(inputs, weights, signs)


def measured_coverage(reference: Reference, max_regions: int) -> Coverage | None:
    """The coverage of a task, measured once; None if it has no inputs with levels or is not well conditioned there.

    Args:
        max_regions: number of regions whose effect is measured, with one call of the reference each.
    """
    known = reference.facts.coverage
    if known is None:
        found = None
        with contextlib.suppress(TaskError, torch.OutOfMemoryError):
            found = _measured(reference, min(max_regions, _MAX_REGIONS))
        known = Coverage({}, ()) if found is None else found
        reference.facts.coverage = known
    return known if known.weights else None


def _measured(reference: Reference, max_regions: int) -> Coverage | None:
    inputs = reference.inputs(LEARNED)
    regions = [*_regions(inputs, reference)][:max_regions]
    if not regions:
        return None
    limit = tolerance(reference.settings)
    before = reference.expected(_raised(inputs, regions, None), LEARNED)
    moved: dict[Region, float] = {}
    for region in regions:
        after = reference.expected(_raised(inputs, regions, region), LEARNED)
        moved[region] = _moved_tolerances(before, after, limit)
    ignored = tuple(region for region in regions if moved[region] < _MIN_MOVED_TOLERANCES)
    needed: dict[Region, float] = {}
    for region in regions:
        # Regions on which the output depends only beside levels in other inputs get a level as well.
        least = _MIN_WEIGHT if region in ignored else _MOVED_TOLERANCES / moved[region]
        needed[region] = min(1.0, max(_MIN_WEIGHT, least))
    totals: dict[tuple[int, int], float] = {}
    for region, weight in needed.items():
        place = (region.tensor, region.axis)
        totals[place] = totals.get(place, 0.0) + weight
    weights = {region: weight / totals[region.tensor, region.axis] for region, weight in needed.items()}
    coverage = Coverage(weights, ignored)
    covered = [covered_inputs(reference, LEARNED, coverage.of_trial(number)) for number in range(coverage.n_trials)]
    return coverage if all(_is_well_conditioned(reference, inputs, limit) for inputs in covered) else None


def _regions(inputs: list[Any], reference: Reference) -> Iterator[Region]:
    """The regions of the inputs that the task draws as numbers."""
    for number, (tensor, domain) in enumerate(zip(tensors(inputs), reference.domains, strict=True)):
        is_number = domain.kind in ("numbers", "uniform") and tensor.is_floating_point() and tensor.element_size() > 1
        if not is_number or not tensor.numel():
            continue
        for axis, size in enumerate(tensor.shape):
            for kind, least in MIN_AXIS.items():
                if size >= least:
                    yield Region(number, axis, kind)


def _at_levels(inputs: list[Any], weights: Mapping[Region, float], signs: Sequence[float]) -> list[Any]:
    """Inputs whose tensors are moved to the weighted sum of the levels of their regions.

    Args:
        signs: of each tensor; -1: its levels begin at the upper end of the range.
    """

    def mix(number: int, tensor: torch.Tensor, regions: list[Region]) -> torch.Tensor:
        total = torch.zeros(1, device=tensor.device)
        for region in regions:
            levels = region.levels(tensor.shape[region.axis], tensor.device)
            total = total + weights[region] * _along(region, levels, tensor)
        return signs[number] * (_SPAN * total - 1)

    return _changed(inputs, list(weights), mix)


def _raised(inputs: list[Any], regions: list[Region], raised: Region | None) -> list[Any]:
    """Inputs whose tensors with regions are in the middle of their range, except for one region that is above it."""

    def mix(number: int, tensor: torch.Tensor, _: list[Region]) -> torch.Tensor:
        if raised is None or raised.tensor != number:
            return torch.zeros(1, device=tensor.device)
        return _along(raised, raised.indicator(tensor.shape[raised.axis], tensor.device), tensor)

    return _changed(inputs, regions, mix)


def _along(region: Region, levels: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Levels along the axis of a region, as a tensor that is broadcast over an input."""
    shape = [-1 if axis == region.axis else 1 for axis in range(tensor.dim())]
    return levels.float().reshape(shape)


def _changed(
    inputs: list[Any],
    regions: list[Region],
    mix: Callable[[int, torch.Tensor, list[Region]], torch.Tensor],
) -> list[Any]:
    """Inputs in which each tensor that has regions is moved.

    Args:
        mix: level of each element between -1 and 1, from number, tensor and regions of the tensor.
    """
    numbers = iter(range(len(tensors(inputs))))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        number = next(numbers)
        own = [region for region in regions if region.tensor == number]
        return laid_out_as(_moved(tensor, mix(number, tensor, own)), tensor) if own else tensor

    return [mapped(value, change) for value in inputs]


def _moved(tensor: torch.Tensor, mix: torch.Tensor) -> torch.Tensor:
    """Values around levels within the range of the drawn ones.

    Args:
        mix: between -1 and 1, broadcast over the tensor.
    """
    values = tensor.float()
    low, high = float(values.min()), float(values.max())
    mean, deviation = float(values.mean()), float(values.std(correction=0))
    low, high = max(low, mean - _MAX_DEVIATIONS * deviation), min(high, mean + _MAX_DEVIATIONS * deviation)
    middle, half = (low + high) / 2, (high - low) / 2
    if not half > 0:
        return tensor
    # No clamp: it would make numbers equal that are different in what the task draws.
    noise = values - values.mean()
    noise = noise / noise.abs().max()
    moved = middle + half * (_LEVEL_SHARE * mix + (1 - _LEVEL_SHARE) * noise)
    return moved.to(tensor.dtype)


def _moved_tolerances(before: Any, after: Any, limit: Tolerance) -> float:
    """Largest movement of an element, in multiples of its tolerance; infinite for integers that differ."""
    largest = 0.0
    for path, one, other in leaves(reals(before), reals(after)):
        if not isinstance(one, torch.Tensor) or one.shape != other.shape or not one.numel():
            continue
        if not one.is_floating_point():
            largest = max(largest, 0.0 if torch.equal(one, other) else float("inf"))
            continue
        rows, others = as_rows(one).double(), as_rows(other).double()
        allowed = limit.atol_of(one.dtype) * element_scales(rows, limit, path) + limit.rtol_of(one.dtype) * rows.abs()
        movement = ((others - rows).abs() / allowed).nan_to_num(nan=0.0)
        largest = max(largest, float(movement.max()))
    return largest


def _is_well_conditioned(reference: Reference, inputs: list[Any], limit: Tolerance) -> bool:
    own = reference.expected(inputs, LEARNED)
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors(reals(own)) if tensor.is_floating_point()):
        return False
    exact = reference.exact(inputs, LEARNED)
    if exact is not None and compare_values(exact, own, attrs.evolve(limit, factor=_CONDITIONED_SHARE)) is not None:
        return False
    # Kernels of half precision round intermediate values, which must not decide the output.
    unit = rounding_unit(reference, own)
    rounded = reference.expected([mapped(value, lambda tensor: _nudged(tensor, unit)) for value in inputs], LEARNED)
    return compare_values(own, rounded, attrs.evolve(limit, factor=_ROUNDED_FACTOR)) is None


def _nudged(tensor: torch.Tensor, unit: float) -> torch.Tensor:
    """Numbers with relative errors of up to a unit of rounding."""
    if not unit or not tensor.is_floating_point() or tensor.element_size() == 1:
        return tensor
    errors = unit * (2 * torch.rand(tensor.shape, device=tensor.device) - 1)
    return laid_out_as((tensor.float() * (1 + errors)).to(tensor.dtype), tensor)

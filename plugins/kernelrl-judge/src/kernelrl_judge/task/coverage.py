"""Inputs whose regions have clearly different levels, so that a kernel that reads a part of an input is wrong.

The mean of half of a drawn input is close to the mean of all of it, and in half precision within the tolerance. For
one trial the numbers of each input are therefore moved to levels within the range that the task draws. A region is a
part of an input along one axis: the second half, the tail, every second element, every second block. The levels are
weighted so that each region moves the output of the reference by as many tolerances as the others.

Integers, truth values and inputs with a structure stay as drawn.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.trees import laid_out_as, leaves, mapped, reals, tensors
from kernelrl_judge.task.comparison import Tolerance, as_rows, compare_values, element_scales, tolerance
from kernelrl_judge.task.reference import LEARNED, Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["Coverage", "Region", "covered_inputs", "measured_coverage"]

_MIN_AXIS = {"second half": 4, "tail": 4, "odd elements": 2, "odd blocks": 16}
"""Smallest size of an axis for each kind of region."""
_N_BLOCKS = 8
"""Number of blocks along an axis; the last one is the tail."""
_MAX_REGIONS = 48
_LEVEL_SHARE = 0.75
"""Share of the range for levels; the rest is for the drawn values around them."""
_MAX_DEVIATIONS = 2.0
"""Half of the range of levels in standard deviations of the drawn values, and at most their own range."""
_MOVED_TOLERANCES = 10.0
"""Movement of the output that the level of a region is to cause."""
_MIN_WEIGHT = 1 / 64
"""Smallest share of the range for a region, also where integers of the output change."""
_MIN_MOVED_TOLERANCES = 1.0
"""Smaller movement at the full range: the reference ignores the region."""
_CONDITIONED_SHARE = 0.5
"""Largest share of the tolerance by which the reference may differ from double precision."""


@attrs.frozen
class Region:
    """A part of an input tensor along one axis."""

    tensor: int
    """Number among the tensors of the inputs."""
    axis: int
    kind: str

    @property
    def text(self) -> str:
        """Description for people."""
        return f"{self.kind} along axis {self.axis} of input tensor {self.tensor + 1}"

    def indicator(self, size: int) -> torch.Tensor:
        """[size] one inside of the region and zero outside."""
        places = torch.arange(size)
        blocks = places * _N_BLOCKS // size
        match self.kind:
            case "second half":
                inside = 2 * places >= size
            case "tail":
                inside = places >= size - max(1, size // _N_BLOCKS)
            case "odd elements":
                inside = places % 2 == 1
            case _:
                inside = blocks % 2 == 1
        return inside.double()

    def levels(self, size: int) -> torch.Tensor:
        """[size] levels between -1 and 1 whose mean over a part of the axis differs from that over all of it."""
        if self.kind == "second half":
            return torch.linspace(-1.0, 1.0, size, dtype=torch.float64)
        if self.kind == "tail":
            return self.indicator(size)
        return 2 * self.indicator(size) - 1


@attrs.frozen
class Coverage:
    """Regions of a task's inputs."""

    weights: Mapping[Region, float]
    """Share of the range of levels for each region; at most 1 together for the regions of a tensor."""
    ignored: tuple[Region, ...]
    """Regions on which the output hardly depends."""


def covered_inputs(reference: Reference, index: int, coverage: Coverage) -> list[Any]:
    """Drawn inputs of a call with levels of all regions, in directions that depend on the seed."""
    directions = random.Random(f"{reference.seed} directions")
    signed = {region: weight * directions.choice((-1.0, 1.0)) for region, weight in coverage.weights.items()}
    return _with_levels(reference.inputs(index), signed)


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
    level_inputs = _with_levels(inputs, dict.fromkeys(regions, 0.0))
    before = reference.expected(level_inputs, LEARNED)
    moved: dict[Region, float] = {}
    for region in regions:
        raised = _with_levels(inputs, {region: 1.0}, is_raised=True, regions=regions)
        moved[region] = _moved_tolerances(before, reference.expected(raised, LEARNED), limit)
    ignored = tuple(region for region in regions if moved[region] < _MIN_MOVED_TOLERANCES)
    needed = {
        region: min(1.0, max(_MIN_WEIGHT, _MOVED_TOLERANCES / moved[region]))
        for region in regions
        if region not in ignored
    }
    totals: dict[int, float] = {}
    for region, weight in needed.items():
        totals[region.tensor] = totals.get(region.tensor, 0.0) + weight
    weights = {region: weight / totals[region.tensor] for region, weight in needed.items()}
    coverage = Coverage(weights, ignored)
    return coverage if _is_well_conditioned(reference, _with_levels(inputs, weights), limit) else None


def _regions(inputs: list[Any], reference: Reference) -> Iterator[Region]:
    """The regions of the inputs that the task draws as numbers."""
    for number, (tensor, domain) in enumerate(zip(tensors(inputs), reference.domains, strict=True)):
        is_number = domain.kind in ("numbers", "uniform") and tensor.is_floating_point() and tensor.element_size() > 1
        if not is_number or not tensor.numel():
            continue
        for axis, size in enumerate(tensor.shape):
            for kind, least in _MIN_AXIS.items():
                if size >= least:
                    yield Region(number, axis, kind)


def _with_levels(
    inputs: list[Any], weights: Mapping[Region, float], *, is_raised: bool = False, regions: list[Region] | None = None
) -> list[Any]:
    """Inputs whose tensors are moved to the sum of weighted levels.

    Args:
        weights: of each region, with its sign.
        is_raised: raise the regions alone, in place of the levels of the whole axis.
        regions: regions of tensors that are also moved, to the middle of their range.
    """
    chosen = {region.tensor for region in (*weights, *(regions or ()))}
    numbers = iter(range(len(tensors(inputs))))

    def change(tensor: torch.Tensor) -> torch.Tensor:
        number = next(numbers)
        if number not in chosen:
            return tensor
        mix = torch.zeros(1, dtype=torch.float32, device=tensor.device)
        for region, weight in weights.items():
            if region.tensor == number:
                size = tensor.shape[region.axis]
                along = region.indicator(size) if is_raised else region.levels(size)
                shape = [-1 if axis == region.axis else 1 for axis in range(tensor.dim())]
                mix = mix + weight * along.float().to(tensor.device).reshape(shape)
        return laid_out_as(_moved(tensor, mix), tensor)

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
    noise = ((values - middle) / half).clamp(-1.0, 1.0)
    moved = middle + half * (_LEVEL_SHARE * mix + (1 - _LEVEL_SHARE) * noise)
    return moved.clamp(low, high).to(tensor.dtype)


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
    return exact is None or compare_values(exact, own, attrs.evolve(limit, factor=_CONDITIONED_SHARE)) is None

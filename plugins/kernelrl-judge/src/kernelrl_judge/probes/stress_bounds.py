"""How far each element of an output may be off in a call of the probe `stress`.

The reference's own errors say what rounding costs. They are those of the reference on inputs that are off by a last
bit: what is computed in another order, or with a constant folded in, is off as much. Scale and errors are taken from
the output as a whole and from its slices: a block of rows, of columns, and so on for each axis. The smallest counts,
so that a few large or noisy elements do not excuse the others. What rounding costs of the largest element in the same
slice is free, along whichever axis that is most: scans and Fourier transforms spread it. Where rows do not depend on
each other, only what stands in the same row counts there.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import attrs
import torch

__all__ = ["ROUNDING", "Bounds", "bounds", "computes_in_double"]

ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
_IN_DOUBLE = 2.0**-40
"""Of an element, or of the root mean square: who is off by less computes in double precision."""
_OWN_ERRORS = 64.0
"""How many times the largest error of the reference an honest kernel may add: another order of sums, Winograd."""
_LARGEST_NOISE = 0.1
"""Of the root mean square of a slice: where the reference's errors allow more, nothing can be decided."""
_NO_NOISE = 1e-4
"""Of the root mean square of the whole output: less is no noise, even where the output is zero."""
_LEAST_IN_BLOCK = 256
"""Elements of a block of slices: the largest error of fewer says little."""
_MOST_BLOCKS = 64
_MOST_ELEMENTS = 1 << 26
"""Of an output that is looked at in slices."""


@attrs.frozen
class Bounds:
    """Of one floating-point output; the tensors have its shape, or one element for all."""

    scale: torch.Tensor
    """What the absolute tolerance is multiplied by, before it is limited to 1."""
    noise: torch.Tensor
    """What an honest kernel may be off beyond the tolerance; infinite where the reference decides nothing."""
    own: float
    """Largest error of the reference."""
    decided: float
    """Share of the elements that are decided."""
    in_double: bool = False
    """Whether the reference computes it in double precision."""


def bounds(exact: torch.Tensor, own: torch.Tensor, *, rows_apart: bool = False) -> Bounds:
    """Bounds of an output.

    Args:
        exact: the output in double precision.
        own: of the same shape: the reference's, in the precision in which it computes.
        rows_apart: whether no row depends on another, a row being a slice along the first dimension.
    """
    known = _known(exact, own, rows_apart=rows_apart)
    if not bool(known.any()):
        nothing = exact.new_tensor(math.inf)
        return Bounds(exact.new_tensor(1.0), nothing, 0.0, float(exact.numel() == 0))
    sizes = torch.where(known, exact.abs(), 0.0)
    errors = torch.where(known, (own.double() - exact).abs(), 0.0)
    if own.dtype in (torch.float16, torch.bfloat16):
        # What rounding an element costs is within the relative tolerance.
        errors = (errors - 2 * ROUNDING[own.dtype] * sizes).clamp_min_(0.0)
    largest = errors.max()
    whole = scale = (sizes.square().sum() / known.sum()).sqrt()
    noise = _OWN_ERRORS * largest
    shape = [size for size in exact.shape if size > 1]
    rows_apart &= exact.dim() > 0 and exact.shape[0] > 1
    if len(shape) > 1 and exact.numel() <= _MOST_ELEMENTS:
        scale, noise = (
            found.view(exact.shape)
            for found in _sliced(
                sizes.view(shape), errors.view(shape), known.view(shape), scale, noise, own.dtype, rows_apart
            )
        )
    decided = known & (noise <= (_LARGEST_NOISE * torch.maximum(scale, sizes)).clamp_min_(_NO_NOISE * whole))
    noise = noise.where(known, math.inf) if not bool(known.all()) else noise
    in_double = own.dtype is torch.float64
    return Bounds(scale.float(), noise.float(), float(largest), float(decided.double().mean()), in_double)


def computes_in_double(exact: torch.Tensor, own: torch.Tensor) -> bool:
    """Whether an output of the reference is as exact as double precision allows.

    Args:
        own: on the very inputs that gave the exact one.
    """
    if own.dtype is not torch.float64 or not torch.equal(torch.isfinite(own), torch.isfinite(exact)):
        return False
    known = torch.isfinite(exact)
    sizes = torch.where(known, exact.abs(), 0.0)
    least = sizes.square().mean().sqrt()
    errors = torch.where(known, (own - exact).abs(), 0.0)
    return bool((errors <= _IN_DOUBLE * torch.maximum(sizes, least)).all())


def _known(exact: torch.Tensor, own: torch.Tensor, *, rows_apart: bool) -> torch.Tensor:
    """Elements that are decided at all: in whatever order, what overflows may reach the rest of its row, or all."""
    finite = torch.isfinite(exact) & torch.isfinite(own)
    if bool(finite.all()):
        return finite
    if not rows_apart or exact.dim() < 2:
        return torch.zeros_like(finite)
    rows = finite.flatten(1).all(1)
    return rows.view(-1, *[1] * (exact.dim() - 1)).expand(exact.shape)


def _sliced(
    sizes: torch.Tensor,
    errors: torch.Tensor,
    known: torch.Tensor,
    scale: torch.Tensor,
    noise: torch.Tensor,
    dtype: torch.dtype,
    rows_apart: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Scale and noise of each element, none above those of the output as a whole."""
    reach = torch.zeros((), dtype=sizes.dtype, device=sizes.device)
    least_scale, least_errors = scale, errors.max()
    for axis, size in enumerate(sizes.shape):
        others = [place for place in range(sizes.dim()) if place != axis]
        along = [size if place == axis else 1 for place in range(sizes.dim())]
        if axis == 0 or not rows_apart:
            reach = torch.maximum(reach, sizes.amax(others).view(along))
        per_block = max(-(-_LEAST_IN_BLOCK * size // sizes.numel()), -(-size // _MOST_BLOCKS))
        if 2 * per_block > size:
            continue
        squares = _pooled(sizes.square().sum(others), per_block, torch.sum)
        counts = _pooled(known.sum(others).double(), per_block, torch.sum)
        # A block of which nothing is known sets no limit, and needs none.
        rms = (squares / counts.clamp_min(1.0)).sqrt()
        least_scale = torch.minimum(least_scale, rms.view(along))
        least_errors = torch.minimum(least_errors, _pooled(errors.amax(others), per_block, torch.amax).view(along))
    spread = ROUNDING.get(dtype, ROUNDING[torch.float32]) * reach
    shape = sizes.shape
    return least_scale.expand(shape), torch.minimum(noise, _OWN_ERRORS * (least_errors + spread)).expand(shape)


def _pooled(values: torch.Tensor, per_block: int, how: Callable[..., torch.Tensor]) -> torch.Tensor:
    """For each place the sum, or the largest, of its block; the last block takes what is left over."""
    whole = (len(values) // per_block - 1) * per_block
    heads, tail = values[:whole].view(-1, per_block), values[whole:]
    return torch.cat([how(heads, 1).repeat_interleave(per_block), how(tail, 0).expand(len(tail))])

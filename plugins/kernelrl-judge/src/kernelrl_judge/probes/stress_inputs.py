"""Harsh inputs, for the calls of the probe `stress` (`kernelrl_judge.probes.stress` says what they are for)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.probes.stress_coincidences import Coincidences, sprinkled
from kernelrl_judge.probes.stress_parameters import spreadable
from kernelrl_judge.probes.stress_shares import with_zeros
from kernelrl_judge.probes.stress_twins import off_alike, with_ties, with_twins
from kernelrl_judge.protocol.layouts import laid_out_as
from kernelrl_judge.protocol.trees import mapped, real
from kernelrl_judge.task.comparing import tolerance
from kernelrl_judge.task.overlays import overlaid
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.stress_ranges import at_ends, is_truth

__all__ = [
    "PARTS",
    "Variant",
    "changed",
    "is_changed",
    "is_mild",
    "nudged",
    "parts",
    "variants",
]

PARTS = (
    "mixed",
    "spiked",
    "aligned",
    "edges",
    "ranges",
    "no_numbers",
    "ends",
    "coincidences",
    "twins",
    "shares",
    "draws",
    "faint",
    "zeros",
    "firsts",
    "lasts",
    "loud",
)
"""Parts in the order of their calls. Which are made depends on what the task's inputs are."""
_LOW_BITS, _ROUNDED_DOWN = 0xFFFF, 0x0FFF
"""Of single precision: what bf16, tf32 and fp16 leave out, and what each of them rounds down by most of its error."""
_LARGE, _MODERATE, _MILD = 65536.0, 16.0, 4.0
"""Largest spikes. fp16 does not reach as far as the large ones."""
_BEYOND = 4.0
"""How many times a bound that a task sets is the largest spike: a row's largest is at least a fourth of that."""
_SMALL = 2.0**-9
"""Of ordinary numbers: their variance is about what usual norms add to it."""
_HALF_ROUNDING = 2.0**-11
_LAST_BIT = 2.0**-23
_LEAST_ALONG = 4
"""Places along an axis, of which one may be quiet."""
_CHANGED = (None, "zeros", "non_finite")
"""Structures of inputs that are changed; of those with infinities the finite elements."""

Variant = tuple[bool, float]
"""A choice and the largest value, 0 where none is set. The choice is whether signs are drawn; at the edges whether
slices are quiet; of ranges whether truth values change, too, and the value whether integers leave their range; of what
is no number whether some are undefined; at the ends whether these are whole numbers, and the value whether they stand
in the same places of each input; of twins whether neighbours in order are equal; of coincidences whether halves are
made."""


def parts(reference: Reference, settings: EvaluationSettings) -> tuple[str, ...]:
    """Parts of the probe that settings ask for, and that change something of a task."""
    asked = "stress" in settings.probes
    if not asked and settings.min_precision == "none":
        return ()
    structures = reference.facts["structures"]
    drawn = any(found in _CHANGED for found in structures)
    single = settings.precision == "fp32" and tolerance(settings).rtol < _HALF_ROUNDING
    made = {
        "mixed": drawn or bool(spreadable(reference)),
        "spiked": drawn,
        "aligned": single and (drawn or "counts" in structures),
        "edges": asked and drawn,
        "ranges": asked and reference.facts["ranges"] is not None,
        "no_numbers": asked and drawn and reference.facts["asks_for_numbers"],
        "ends": asked and drawn and reference.facts.get("refuses", False),
        "coincidences": asked and drawn and settings.precision == "fp32" and bool(reference.facts["coincidences"]),
        "twins": asked and settings.precision == "fp32" and reference.facts["twins"],
        "shares": asked and any(axis is not None for axis in reference.facts["shares_along"]),
        "draws": asked and bool(reference.facts["draws"]),
        "faint": asked and drawn and settings.precision == "fp32" and reference.facts["whole"],
        "zeros": asked and drawn and settings.precision == "fp32" and reference.facts["whole"],
        "firsts": asked and any(reference.facts["at_one_end"]),
        "lasts": asked and any(reference.facts["at_one_end"]),
        # What rounds in proportion to the largest value rounds alike here.
        "loud": asked and drawn and settings.precision == "fp32" and reference.facts["convolves"],
    }
    return tuple(part for part in PARTS if made[part])


def variants(reference: Reference, settings: EvaluationSettings, part: str) -> list[Variant]:
    """Changes of a part, the harshest first."""
    # Winograd's and Fourier's convolutions spread the rounding of a large value over its neighbours, and a tolerance
    # that lets half precision pass lets its range pass.
    large = tolerance(settings).rtol < _HALF_ROUNDING and not reference.facts["convolves"]
    bound = _BEYOND * reference.facts["bound"]
    if part == "mixed":
        return [(True, 0.0), (False, 0.0), (True, _MILD), (False, _MILD)]
    if part == "spiked":
        sizes = (_LARGE, _MODERATE) if large else (_MODERATE,)
        sizes = (bound, *sizes) if large and bound > _LARGE else sizes
        return [(signs, largest) for largest in sizes for signs in (True, False)]
    if part == "edges":
        # What half precision chooses among equals, its noise does not tell.
        quiet = [(True, _LARGE if large else _MODERATE), (True, _MILD)] if settings.precision == "fp32" else []
        return [*quiet, (False, _LARGE if large else _MODERATE), (False, _MILD)]
    if part == "ranges":
        truths = [is_truth(limits) for limits in reference.facts["ranges"] if limits is not None]
        numbers = [1.0] * reference.facts["leaves_range"] + [0.0]
        kinds = [True] * any(truths) + [False] * (not all(truths))
        return [(kind, number) for kind in kinds for number in numbers]
    if part == "no_numbers":
        return [(True, math.inf), (True, 0.0), (False, math.inf)]
    if part == "ends":
        return [(True, 0.0), (True, 1.0), (False, 0.0)]
    if part == "twins":
        return [(True, 0.0)] * ("sorted" in reference.facts["structures"]) + [(False, 0.0)]
    if part == "coincidences":
        known: Coincidences = reference.facts["coincidences"]
        return [(known.rounds, 0.0)] + [(False, 0.0)] * bool(known.rounds and known.numbers)
    return [(False, 0.0)]


def is_mild(part: str, variant: Variant) -> bool:
    """Whether a task's own precision decides on inputs like these."""
    return part not in ("mixed", "spiked", "edges") or variant[1] == _MILD


def changed(values: list[Any], facts: dict[str, Any], part: str, variant: Variant) -> list[Any]:
    """Inputs of a part; what has a structure stays, but zeros that stand in fixed places may stand among others.

    Args:
        facts: the reference's, with the structures and ranges of its inputs.
    """
    if part == "draws":
        return values
    places = iter(range(len(facts["structures"])))
    others: dict[Any, torch.Tensor] = {}
    of_norm_one: dict[Any, torch.Tensor] = {}

    def change(tensor: torch.Tensor) -> torch.Tensor:
        place = next(places)
        known = facts["structures"][place]
        if not tensor.numel():
            return tensor
        if part == "ranges":
            limits = facts["ranges"][place]
            stays = limits is None or known == "fixed" or (is_truth(limits) and not variant[0])
            leaves = variant[1] > 0
            return tensor if stays else at_ends(tensor, limits, facts["singled_out"], leaves=leaves)
        if part in ("firsts", "lasts"):
            limits = facts["at_one_end"][place]
            stays = limits is None or known == "fixed"
            return tensor if stays else torch.full_like(tensor, limits[1] - 1 if part == "lasts" else limits[0])
        if part == "twins":
            drawn = facts["twin_ranges"][place] is not None and known != "fixed"
            if known == "sorted" and variant[0]:
                return with_ties(tensor)
            if facts["of_norm_one"][place]:
                return with_twins(tensor, of_norm_one, alike=False, opposite=bool((tensor < 0).any()))
            meets = drawn or (is_changed(tensor, known) and known is None and not tensor.is_complex())
            return with_twins(tensor, others, alike=drawn or facts["alike"]) if meets else tensor
        if part == "shares":
            axis = facts["shares_along"][place]
            return tensor if axis is None else with_zeros(tensor, axis, others)
        if part == "aligned" and known == "counts":
            return _repeated(tensor)
        if part == "edges" and known == "counts" and variant[0]:
            return _with_none(tensor)
        if not is_changed(tensor, known):
            return tensor
        if part == "coincidences":
            return tensor if tensor.is_complex() or known is not None else _met(facts, variant).placed(tensor)
        kinds = None
        if part == "ends" and variant[1]:
            # Where one is at an end, another may have to be.
            kinds = others.setdefault((tensor.shape, tensor.is_complex()), _kinds(tensor))
        if known != "non_finite":
            return _of_parts(tensor, lambda values: _harsh(values, part, variant, kinds))
        finite = torch.isfinite(tensor)
        found = _of_parts(torch.where(finite, tensor, 0.0), lambda values: _harsh(values, part, variant, kinds))
        return torch.where(finite, found, tensor)

    # A kernel may rely on the strides of its inputs.
    return [mapped(value, lambda tensor: laid_out_as(change(tensor), tensor)) for value in values]


def _met(facts: dict[str, Any], variant: Variant) -> Coincidences:
    known: Coincidences = facts["coincidences"]
    return attrs.evolve(known, rounds=variant[0])


def is_changed(tensor: torch.Tensor, known: str | None) -> bool:
    """Whether an input of a structure is multiplied."""
    return known in _CHANGED and (tensor.is_floating_point() or tensor.is_complex())


def _of_parts(tensor: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """What a function makes of real numbers; of complex ones it is given both parts."""
    found = function(real(tensor))
    if tensor.is_complex():
        found = torch.view_as_complex(found.contiguous())
    return found


def _harsh(tensor: torch.Tensor, part: str, variant: Variant, kinds: torch.Tensor | None = None) -> torch.Tensor:
    signs, largest = variant
    match part:
        case "aligned":
            return _aligned(tensor)
        case "spiked":
            return _spiked(tensor, largest, signed=signs)
        case "edges":
            return _edged(tensor, largest, quiet=signs)
        case "no_numbers":
            return _not_numbers(tensor, infinite=largest > 0, undefined=signs)
        case "ends":
            return _ended(tensor, kinds if kinds is not None else _kinds(tensor), whole=signs)
        case "faint":
            return tensor * _SMALL
        case "loud":
            return tensor / _SMALL
        case "zeros":
            return torch.zeros_like(tensor)
    if largest:
        tensor = tensor * torch.rand_like(tensor) * largest
        return _signed(tensor) if signs else tensor
    if signs:
        return _signed(overlaid(tensor, "mixed"))
    return overlaid(overlaid(tensor, "heavy_tailed"), "row_scaled")


def nudged(values: list[Any], facts: dict[str, Any], part: str, variant: Variant = (False, 0.0)) -> list[Any]:
    """Inputs that are off by a last bit where they may be changed: what their rounding makes of an output is noise.

    At the edges, zeros are off by next to nothing, so that what is chosen among equals counts as noise as well. At the
    ends of a range they stay there: beyond, a reference may refuse them. So do numbers that a reference compares with.
    """
    known = iter(facts["structures"])

    def nudge(tensor: torch.Tensor) -> torch.Tensor:
        structure = next(known)
        single = tensor.dtype in (torch.float32, torch.complex64)
        if not (single and tensor.numel() and is_changed(tensor, structure)):
            return tensor
        found = _of_parts(tensor, lambda values: _off(values, part))
        if part == "coincidences" and not tensor.is_complex():
            found = torch.where(_met(facts, variant).are_in(tensor), tensor, found)
        infinite = structure == "non_finite" or part == "no_numbers"
        return torch.where(torch.isfinite(tensor), found, tensor) if infinite else found

    return [mapped(value, nudge) for value in values]


def _off(tensor: torch.Tensor, part: str) -> torch.Tensor:
    """Numbers off by a last bit."""
    off = off_alike(tensor) if part == "twins" else torch.rand_like(tensor) * 2 - 1
    moved = torch.addcmul(tensor, tensor, off, value=_LAST_BIT)
    if part == "edges":
        return torch.where(tensor == 0, off * 2.0**-100, moved)
    if part == "ends":
        low, high = tensor.aminmax()
        return torch.where((tensor == low) | (tensor == high), tensor, moved.clamp(low, high))
    return moved


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    """Random signs, but for the first quarter of the rows, which are negative, and the second, which are positive:
    what overflows for one sign does not hide there what happens to the other."""
    signed = torch.where(torch.rand_like(tensor, dtype=torch.float32).lt(0.5), -tensor, tensor)
    if not tensor.dim():
        return signed
    quarter = tensor.shape[0] // 4 if tensor.dim() > 1 else 0
    signed[:quarter] = -tensor[:quarter].abs()
    signed[quarter : 2 * quarter] = tensor[quarter : 2 * quarter].abs()
    return signed


def _spiked(tensor: torch.Tensor, largest: float, *, signed: bool) -> torch.Tensor:
    """Times a uniform number to the power of -4: of such a distribution any sum is that of its few largest terms."""
    values = tensor.float() / torch.rand_like(tensor, dtype=torch.float32).clamp_min(2.0**-20).pow(4)
    if signed:
        values = torch.where(torch.rand_like(values).lt(0.5), -values, values)
    within = tuple(range(1, values.dim())) if values.dim() > 1 and values.shape[0] > 1 else tuple(range(values.dim()))
    peaks = values.abs().amax(within, keepdim=True) if within else values.abs()
    factors = torch.exp2(-2 * torch.rand_like(peaks)) * largest
    return torch.where(peaks > 0, values / peaks * factors, values).to(tensor.dtype)


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Nearly the same numbers, which lie a little above those of narrower types."""
    if tensor.dtype is not torch.float32:
        return tensor
    bits = tensor.contiguous().view(torch.int32)
    moved = ((bits & ~_LOW_BITS) | _ROUNDED_DOWN).view(torch.float32)
    return torch.where((tensor == 0) | ~torch.isfinite(tensor), tensor, moved)


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers of the tensor, each many times: half of its rows hold one number each, the others are all alike."""
    if tensor.dim() < 2 or tensor.shape[0] < 2:
        return tensor.flatten()[:1].expand(tensor.numel()).view(tensor.shape).contiguous()
    half = tensor.shape[0] // 2
    firsts = tensor[:half].flatten(1)[:, :1].view(half, *[1] * (tensor.dim() - 1))
    return torch.cat([firsts.expand(tensor[:half].shape), tensor[half : half + 1].expand(tensor[half:].shape)])


def _edged(tensor: torch.Tensor, largest: float, *, quiet: bool) -> torch.Tensor:
    """The first and the last slice along each axis so much larger that a sum is not right without them; if `quiet`,
    the second slice along the first two axes and the last one is zero, and the third is small."""
    factors = torch.ones((), dtype=torch.float32, device=tensor.device)
    for axis, size in enumerate(tensor.shape):
        along = torch.ones(size, device=tensor.device)
        along[[0, -1]] = min(largest, max(_MILD, size / 4))
        factors = torch.maximum(factors, along.view([size if place == axis else 1 for place in range(tensor.dim())]))
    values = (tensor.float() * factors).to(tensor.dtype)
    if quiet:
        axes = _quiet_axes(tensor)
        for axis in axes:
            values.select(axis, 2).copy_(tensor.select(axis, 2) * _SMALL)
        for axis in axes:
            values.select(axis, 1).zero_()
    return values


def _quiet_axes(tensor: torch.Tensor) -> list[int]:
    """Axes with room for quiet places. Along the last one they are quiet in what other axes hold side by side, too."""
    axes = dict.fromkeys([*range(min(2, tensor.dim())), tensor.dim() - 1]) if tensor.dim() else ()
    return [axis for axis in axes if tensor.shape[axis] >= _LEAST_ALONG]


def _with_none(tensor: torch.Tensor) -> torch.Tensor:
    """Counts, of which the second along each axis are zero."""
    found = tensor.clone()
    for axis in _quiet_axes(tensor):
        found.select(axis, 1).zero_()
    return found


def _not_numbers(tensor: torch.Tensor, *, infinite: bool, undefined: bool) -> torch.Tensor:
    """A few infinities of both signs, and a few that are no number."""
    numbers = (*[math.inf, -math.inf] * infinite, *[math.nan] * undefined)
    return sprinkled(tensor, numbers, torch.rand_like(tensor, dtype=torch.float32))


def _kinds(tensor: torch.Tensor) -> torch.Tensor:
    return torch.rand_like(real(tensor), dtype=torch.float32)


def _ended(tensor: torch.Tensor, kinds: torch.Tensor, *, whole: bool) -> torch.Tensor:
    """A quarter of the numbers each is the smallest and the largest of all, or the whole number next to it."""
    low, high = tensor.aminmax()
    if whole:
        low, high = low.floor(), high.ceil()
    return torch.where(kinds < 0.25, low, torch.where(kinds < 0.5, high, tensor))

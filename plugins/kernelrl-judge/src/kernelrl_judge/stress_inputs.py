"""Harsh inputs and parameters, for the calls of the probe `stress` (`kernelrl_judge.stress` says what they are for)."""

from __future__ import annotations

from typing import Any

import torch

from kernelrl_core.values import EvaluationSettings
from kernelrl_judge.comparing import tolerance
from kernelrl_judge.overlays import overlaid
from kernelrl_judge.reference import Reference
from kernelrl_judge.trees import mapped

__all__ = ["PARTS", "Variant", "changed", "parameters", "parts", "variants", "with_spread"]

PARTS = ("mixed", "spiked")
"""Parts that any settings may ask for, in the order of their calls."""
_ALIGNED = "aligned"
_LOW_BITS, _ROUNDED_DOWN = 0xFFFF, 0x0FFF
"""Of single precision: what bf16, tf32 and fp16 leave out, and what each of them rounds down by most of its error."""
_LARGE, _MODERATE = 65536.0, 16.0
"""Largest spikes. fp16 does not reach as far as the large ones."""
_HALF_ROUNDING = 2.0**-11

Variant = tuple[bool, float]
"""Whether signs are drawn, and the largest value."""


def parts(settings: EvaluationSettings) -> tuple[str, ...]:
    """Parts of the probe that settings ask for."""
    if "stress" not in settings.probes and settings.min_precision == "none":
        return ()
    if settings.precision == "fp32" and tolerance(settings).rtol < _HALF_ROUNDING:
        return (*PARTS, _ALIGNED)
    return PARTS


def variants(reference: Reference, settings: EvaluationSettings, part: str) -> list[Variant]:
    """Changes of a part, the harshest first: whether signs are drawn, and the largest value."""
    if part == "mixed":
        return [(True, 0.0), (False, 0.0)]
    if part == _ALIGNED:
        return [(False, 0.0)]
    # Winograd's and Fourier's convolutions spread the rounding of a large value over its neighbours, and a tolerance
    # that lets half precision pass lets its range pass.
    large = tolerance(settings).rtol < _HALF_ROUNDING and not reference.facts["convolves"]
    return [(signs, largest) for largest in ((_LARGE, _MODERATE) if large else (_MODERATE,)) for signs in (True, False)]


def changed(values: list[Any], structures: list[str | None], part: str, variant: Variant) -> list[Any]:
    """Inputs of a part; what has a structure stays, but zeros that stand in fixed places may stand among others."""
    signs, largest = variant
    known = iter(structures)

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if next(known) not in (None, "zeros") or not tensor.is_floating_point():
            return tensor
        if part == _ALIGNED:
            return _aligned(tensor)
        if part == "spiked":
            return _spiked(tensor, largest, signed=signs)
        if signs:
            return overlaid(tensor, "mixed")
        return overlaid(overlaid(tensor, "heavy_tailed"), "row_scaled")

    return [mapped(value, change) for value in values]


def parameters(reference: Reference) -> set[str]:
    """Names of the parameters that may be changed."""
    return {name for name, tensor in reference.model.named_parameters() if tensor.is_floating_point()}


def with_spread(reference: Reference) -> Reference:
    """Parameters that differ from those of the constructor: constants are no longer constant, and small ones count."""
    reference.seed(Reference.first_timed_input - 6)
    state = dict(reference.state)
    for name in sorted(parameters(reference) & state.keys()):
        tensor = state[name].float()
        fan_in = tensor[0].numel() if tensor.dim() > 1 else 1
        spread = max(float(tensor.std(correction=0)) if tensor.numel() else 0.0, 0.1 if fan_in == 1 else fan_in**-0.5)
        state[name] = torch.add(tensor, torch.randn_like(tensor), alpha=spread).to(state[name].dtype)
    return reference.with_state(state)


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

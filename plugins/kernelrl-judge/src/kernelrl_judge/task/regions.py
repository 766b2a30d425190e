"""Regions of inputs, and how a task's output depends on them."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import torch

__all__ = ["MIN_AXIS", "Coverage", "Region"]

MIN_AXIS = {"second half": 4, "tail": 4, "odd elements": 2, "odd blocks": 16}
"""Smallest size of an axis for each kind of region."""
_N_BLOCKS = 8
"""Number of blocks along an axis; the last one is the tail."""


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

    def indicator(self, size: int, device: torch.device) -> torch.Tensor:
        """[size] float64 on a device, which is that of the inputs: an axis may have millions of elements.

        One inside of the region and zero outside.
        """
        places = torch.arange(size, device=device)
        match self.kind:
            case "second half":
                inside = 2 * places >= size
            case "tail":
                inside = places >= size - max(1, size // _N_BLOCKS)
            case "odd elements":
                inside = places % 2 == 1
            case _:
                inside = places * _N_BLOCKS // size % 2 == 1
        return inside.double()

    def levels(self, size: int, device: torch.device) -> torch.Tensor:
        """[size] float64 between 0 and 1; the mean over a part of the axis differs from that over all of it."""
        if self.kind == "second half":
            return torch.linspace(0.0, 1.0, size, dtype=torch.float64, device=device)
        return self.indicator(size, device)


@attrs.frozen
class Coverage:
    """Regions of a task's inputs."""

    weights: Mapping[Region, float]
    """Share of the range of levels for each region; together 1 for the regions along one axis of a tensor."""
    ignored: tuple[Region, ...]
    """Regions on which the output hardly depends."""

    @property
    def n_trials(self) -> int:
        """Number of trials in which each axis is covered once."""
        axes: dict[int, set[int]] = {}
        for region in self.weights:
            axes.setdefault(region.tensor, set()).add(region.axis)
        return max(map(len, axes.values()), default=0)

    def of_trial(self, number: int) -> dict[Region, float]:
        """The regions and weights of one covered trial: those along one axis of each tensor."""
        axes: dict[int, list[int]] = {}
        for region in self.weights:
            known = axes.setdefault(region.tensor, [])
            if region.axis not in known:
                known.append(region.axis)
        chosen = {tensor: known[number % len(known)] for tensor, known in axes.items()}
        return {region: weight for region, weight in self.weights.items() if region.axis == chosen[region.tensor]}

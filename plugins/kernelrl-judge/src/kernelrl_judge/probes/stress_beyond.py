"""Parameters beyond the bounds that a task sets them, for the probe `stress`.

A task may bound what it makes of a parameter, as a learned temperature, far from where the constructor puts it. What
does not depend on the inputs and is bounded tells of such parameters; they are tried a few distances away, until a
bound changes something.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import reals, tensors
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError
from kernelrl_judge.task.stress_functions import BOUNDING

__all__ = ["beyond", "distances_beyond"]

_DISTANCES = (1.0, 4.0, 16.0)
_MOST_ELEMENTS = 1 << 16
_MOST_PARAMETERS = 4
_FUNCTIONS = BOUNDING | {"maximum", "minimum"}


def distances_beyond(reference: Reference, names: Iterable[str]) -> dict[str, list[float]]:
    """What takes parameters beyond a bound, upwards, downwards, or both, of those that the reference bounds.

    Args:
        names: of the parameters that may be changed.
    """
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        first, second = (_bounded(reference, LEARNED - number)[0] for number in (0, 1))
        if len(first) != len(second):
            return {}
        kept = [place for place, pair in enumerate(zip(first, second, strict=True)) if _same(*pair)]
        sizes = {first[place][0].numel() for place in kept}
        bounded = [name for name in sorted(names) if reference.state[name].numel() in sizes][:_MOST_PARAMETERS]
        found = {name: _distances(reference, name, first, kept) for name in bounded}
        return {name: distances for name, distances in found.items() if distances}
    return {}


def beyond(value: torch.Tensor, distances: list[float]) -> torch.Tensor:
    """A parameter of which about half is beyond a bound; a single number is beyond one of them."""
    chosen = torch.tensor(distances, device=value.device)[
        torch.randint(len(distances), value.shape, device=value.device)
    ]
    moves = torch.rand(value.shape, device=value.device) < (0.5 if value.numel() > 1 else 1.0)
    return torch.where(moves, value + chosen, value).to(value.dtype)


def _distances(
    reference: Reference, name: str, usual: list[tuple[torch.Tensor, int]], places: list[int]
) -> list[float]:
    """The least distance upwards and downwards from which more is bounded, where the outputs remain finite."""
    found = []
    for sign in (1.0, -1.0):
        for distance in _DISTANCES:
            moved = reference.state[name] + sign * distance
            made, finite = _bounded(reference.with_state({**reference.state, name: moved}), LEARNED)
            if len(made) != len(usual):
                break
            if any(made[place][1] > usual[place][1] for place in places):
                found += [sign * distance] * finite
                break
    return found


def _same(first: tuple[torch.Tensor, int], second: tuple[torch.Tensor, int]) -> bool:
    return bool(first[0].numel()) and torch.equal(first[0], second[0])


def _bounded(reference: Reference, index: int) -> tuple[list[tuple[torch.Tensor, int]], bool]:
    """What a call bounds, each with how many of its numbers that changes, and whether its outputs are finite."""
    watch = _Bounds()
    inputs = reference.inputs(index)
    with watch:
        made = reference.expected(inputs, index)
    return watch.found, all(bool(tensor.isfinite().all()) for tensor in tensors(reals(made)))


class _Bounds(TorchFunctionMode):
    """Keeps what is bounded, where it is small."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[torch.Tensor, int]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = args[0] if args and isinstance(args[0], torch.Tensor) else None
        looks = getattr(func, "__name__", "") in _FUNCTIONS and given is not None
        if given is None or not looks or not given.is_floating_point() or given.numel() > _MOST_ELEMENTS:
            return func(*args, **(kwargs or {}))
        before = given.detach().clone()
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.shape == before.shape:
            self.found.append((before, int((found != before).sum())))
        return found

"""A wrong output with the place of its wrong elements, and the likely causes that they show."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Mismatch, WrongElement
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.task.comparison import Tolerance, wrong_elements
from kernelrl_judge.task.likely_causes import likely_causes
from kernelrl_judge.task.wrong_region import places_of_ranks, wrong_region

__all__ = ["located"]

_MAX_LOCATED = 1 << 28
"""Largest number of elements whose places are looked at."""


def located(wrong: Mismatch, expected: Any, actual: Any, limit: Tolerance, inputs: Sequence[Any] = ()) -> Mismatch:
    """A difference of values with shape and dtype of the output, wrong elements, their region and likely causes.

    Args:
        wrong: the result of `compare_values` for the same values.
        inputs: of the call.
    """
    if wrong.kind not in ("values", "non_finite"):
        return wrong
    pairs = ((want, got) for path, want, got in leaves(expected, actual) if path == wrong.output)
    want, got = next(pairs, (None, None))
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return wrong
    found = attrs.evolve(wrong, shape=tuple(got.shape), dtype=str(got.dtype).removeprefix("torch."))
    if want.numel() > _MAX_LOCATED:
        return found
    # The device may lack memory, and torch lacks some operations for rare dtypes.
    with contextlib.suppress(RuntimeError):
        places = wrong_elements(want, got, limit, wrong.output)
        if bool(places.any()):
            region = wrong_region(places)
            found = attrs.evolve(
                found,
                elements=_elements(want, got, places),
                pattern=region.pattern,
                region=region.text,
                causes=likely_causes(want, got, places, region, inputs),
            )
    return found


def _elements(expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor) -> tuple[WrongElement, ...]:
    """The first, the second, the middle and the last wrong element."""
    last = int(wrong.sum()) - 1
    chosen = places_of_ranks(wrong, torch.tensor(sorted({0, min(1, last), last // 2, last})))
    indices = torch.unravel_index(chosen, expected.shape) if expected.dim() else ()
    wanted = expected.reshape(-1)[chosen.to(expected.device)].tolist()
    got = actual.reshape(-1)[chosen.to(actual.device)].tolist()
    return tuple(
        WrongElement(tuple(int(axis[number]) for axis in indices), _text(wanted[number]), _text(got[number]))
        for number in range(len(chosen))
    )


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""On what of its inputs an output depends, for the probe `stress`: tried once for each task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import mapped, reals, tensors
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.reference import Reference

__all__ = ["OtherOrder", "depends_on_all", "rows_apart"]

_DEPENDS = 1e-4
"""Share of a number by which it depends on another."""
_CORNER = 4
_MOST_OUTPUTS = 0.6
"""Share of the outputs that a corner of an input changes, if each depends on all of it. What depends on a row or on a
column changes by a fourth."""


def rows_apart(reference: Reference) -> bool:
    """Whether no row of an output depends on other rows of the inputs, a row being a slice along the first dimension:
    half of the rows stay as they are when the others change."""
    outputs = [tensor for tensor in tensors(reference.like) if tensor.dim() > 1]
    counts = {len(tensor) for tensor in outputs}
    rows = min(counts, default=0)
    if len(counts) != 1 or rows < 2:
        return False
    first, second = (reference.inputs(LEARNED - number) for number in (0, 1))
    others = iter(tensors(second))

    def joined(tensor: torch.Tensor) -> torch.Tensor:
        other = next(others)
        same = tensor.dim() > 0 and len(tensor) == rows and tensor.shape == other.shape
        return torch.cat([tensor[: rows // 2], other[rows // 2 :]]) if same else tensor

    mixed = [mapped(value, joined) for value in first]
    before, after, alike = (reference.expected(values) for values in (first, mixed, second))
    pairs = zip(*(tensors(reals(value)) for value in (before, after, alike)), strict=True)
    return all(
        torch.allclose(kept[: rows // 2].double(), was[: rows // 2].double(), _DEPENDS, _DEPENDS)
        and torch.allclose(kept[rows // 2 :].double(), other[rows // 2 :].double(), _DEPENDS, _DEPENDS)
        for was, kept, other in pairs
        if kept.dim() > 1
    )


def depends_on_all(reference: Reference, changes: Sequence[bool]) -> bool:
    """Whether nearly every element of the outputs depends on all of some input: it is another when a corner is.

    Args:
        changes: which of the input tensors may be changed.
    """
    inputs = reference.inputs(LEARNED)
    before = _floats(reference.expected(inputs, LEARNED))
    for place, is_changed in enumerate(changes):
        if is_changed and before:
            places = iter(range(len(changes)))
            other = [mapped(value, lambda tensor: _doubled(tensor, next(places) == place)) for value in inputs]  # noqa: B023
            shares = [_changed(*pair) for pair in zip(before, _floats(reference.expected(other, LEARNED)), strict=True)]
            if min(shares) > _MOST_OUTPUTS:
                return True
    return False


def _floats(value: Any) -> list[torch.Tensor]:
    return [tensor for tensor in tensors(reals(value)) if tensor.is_floating_point() and tensor.numel()]


def _doubled(tensor: torch.Tensor, here: bool) -> torch.Tensor:
    """A tensor whose last places along every axis are twice as large."""
    if not here or not tensor.numel():
        return tensor
    found = tensor.clone()
    found[tuple(slice(-max(1, size // _CORNER), None) for size in tensor.shape)] *= 2
    return found


def _changed(before: torch.Tensor, after: torch.Tensor) -> float:
    """Share of the elements that are another, of those that are not zero."""
    counts = before != 0
    moved = counts & ((after - before).abs() > _DEPENDS * before.abs())
    return float(moved.sum() / counts.sum().clamp_min(1))


class OtherOrder(TorchFunctionMode):
    """Of equals, the last comes first where a function sorts in no order that is promised, or tells an extreme and its
    place."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        before = {"sort": 1, "argsort": 1, "topk": 2, "max": 1, "min": 1}.get(name)
        if before is None or kwargs.get("stable") or kwargs.get("out") is not None or not args or not args[0].dim():
            return func(*args, **kwargs)
        axis = args[before] if len(args) > before else kwargs.get("dim", None if name in ("max", "min") else -1)
        if not isinstance(axis, int):
            return func(*args, **kwargs)
        found = func(args[0].flip(axis), *args[1:], **kwargs)
        last = args[0].shape[axis] - 1
        return last - found if isinstance(found, torch.Tensor) else type(found)((found[0], last - found[1]))

"""Draws that are hardly ever made, for the probe `stress`.

A task may make its inputs of integers that it draws: offsets that it sorts, sums of lengths, a mask of what lies below
a length. What it makes of another draw is an input of its own, whatever is done to the numbers. So `torch.randint` is
made to give numbers that repeat, and the ends of its range, while the inputs are made.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.comparing import compare_bytes
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.stress_ranges import Range, drawn_from, is_truth

__all__ = ["RareDraws", "made_of_draws"]

_LEAST = 4
"""Numbers of a draw; fewer may be sizes."""
_MOST_DRAWS = 16
"""Who draws again until there are no equals ends all the same."""


class RareDraws(TorchFunctionMode):
    """Has `torch.randint` give the last number of its range for a third of its numbers, or of their rows, the first for
    a third, and four for the others. Other draws stay as they are."""

    def __init__(self) -> None:
        super().__init__()
        self._draws = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        if getattr(func, "__name__", "") != "randint" or not isinstance(found, torch.Tensor):
            return found
        limits = drawn_from("randint", args, kwargs)
        self._draws += 1
        if limits is None or is_truth(limits) or found.numel() < _LEAST or self._draws > _MOST_DRAWS:
            return found
        return _repeated(found, limits)


def _repeated(drawn: torch.Tensor, limits: Range) -> torch.Tensor:
    # Nothing is drawn here, so that what the task draws later stays the same.
    few = drawn.flatten()[:_LEAST]
    found = few[torch.arange(drawn.numel(), device=drawn.device) % _LEAST].view(drawn.shape)
    rows = found if len(found) > 2 else found.view(-1)
    third = -(-len(rows) // 3)
    rows[:third] = limits[1] - 1
    rows[third : 2 * third] = limits[0]
    return found


def made_of_draws(reference: Reference, index: int) -> list[int]:
    """Numbers of the tensors among the inputs that are others after a rare draw; none where shapes are others, too.

    Raises:
        TaskError: the task makes nothing of such a draw.
    """
    usual = tensors(reference.inputs(index))
    with RareDraws():
        rare = tensors(reference.inputs(index))
    if [tensor.shape for tensor in usual] != [tensor.shape for tensor in rare]:
        return []
    pairs = enumerate(zip(usual, rare, strict=True))
    return [place for place, pair in pairs if compare_bytes(*pair) is not None]

"""Ranges of integer inputs that a task declares by drawing them, for the probe `stress`.

An input that `torch.randint` has drawn, and nothing has touched since, may hold any numbers of its range, each end and
duplicates among them. What else is known of integers is what a call shows, and a kernel may rely on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.trees import tensors

__all__ = ["Range", "at_ends", "declared"]

Range = tuple[int, int]
"""The smallest number, and the first above the largest."""
_LEAST_NUMBERS = 3
"""Fewer are truth values, of which every draw has each."""


def declared(draw: Callable[[], list[Any]]) -> list[Range | None] | None:
    """The range of each tensor that `draw` makes, None for one without; None if an integer tensor has no range."""
    watch = _Draws()
    with watch:
        made = draw()
    found: list[Range | None] = []
    for tensor in tensors(made):
        known = watch.drawn.get(id(tensor))
        whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
        if whole and known is None:
            return None
        wide = whole and known is not None and known[1] - known[0] >= _LEAST_NUMBERS
        found.append((known[0], known[1]) if wide and known is not None else None)
    return found if any(found) else None


def at_ends(tensor: torch.Tensor, limits: Range) -> torch.Tensor:
    """Numbers of a range: a third of the rows hold its last, a third its first, and the others few numbers each."""
    low, high = limits
    few = torch.randint(low, high, (4,), device=tensor.device)
    values = few[torch.randint(4, tensor.shape, device=tensor.device)].to(tensor.dtype)
    rows = values if tensor.dim() and tensor.shape[0] > 2 else values.view(-1)
    third = -(-len(rows) // 3)
    rows[:third] = high - 1
    rows[third : 2 * third] = low
    return values


class _Draws(TorchFunctionMode):
    """Remembers what `torch.randint` draws, until something else is made of it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn: dict[int, tuple[int, int, torch.Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in tensors([args, kwargs]):
            self.drawn.pop(id(tensor), None)
        found = func(*args, **kwargs)
        if getattr(func, "__name__", "") == "randint" and isinstance(found, torch.Tensor):
            numbers = [value for value in args if isinstance(value, int)]
            low = kwargs.get("low", numbers[0] if len(numbers) > 1 else 0)
            high = kwargs.get("high", numbers[-1] if numbers else None)
            if isinstance(low, int) and isinstance(high, int):
                # With the tensor, so that no other has its number.
                self.drawn[id(found)] = (low, high, found)
        return found

"""Finds operations whose operands were broadcast against each other, probably by accident."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Broadcasts"]

_OPERATIONS = {
    *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "truediv", "floor_divide", "pow"),
    *("radd", "rsub", "rmul", "rdiv", "rtruediv", "rpow", "maximum", "minimum", "fmax", "fmin", "where", "atan2"),
    *("eq", "ne", "lt", "le", "gt", "ge", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "broadcast_tensors"),
}


class Broadcasts(TorchFunctionMode):
    """Watches calls. `found` says what the first suspicious one did.

    Suspicious is a vector of n that meets a column (n, 1), which makes a square of both, and an input vector of n that
    meets an n × n input, along one of two dimensions by chance. Operands of equal rank were broadcast on purpose.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.found: str | None = None
        self._inputs = list(inputs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is None and getattr(func, "__name__", "").strip("_") in _OPERATIONS:
            given = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
            for first, second in itertools.pairwise(given):
                wide, narrow = (first, second) if first.dim() >= second.dim() else (second, first)
                if self._suspicious(wide, narrow):
                    self.found = f"{func.__name__} of {tuple(first.shape)} and {tuple(second.shape)}"
        return func(*args, **(kwargs or {}))

    def _suspicious(self, wide: torch.Tensor, narrow: torch.Tensor) -> bool:
        if narrow.dim() != 1 or wide.dim() != 2 or narrow.numel() < 2:
            return False
        size = narrow.shape[0]
        if tuple(wide.shape) == (size, 1):
            return True
        return tuple(wide.shape) == (size, size) and self._given(wide) and self._given(narrow)

    def _given(self, tensor: torch.Tensor) -> bool:
        return any(tensor.data_ptr() == given.data_ptr() for given in self._inputs)

"""What an audit sees in inputs: a structure that they share from one call to the next, and accidental broadcasts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Broadcasts", "structure"]

_LEAST = 4
"""Elements of a tensor, or of a row, that a structure can be seen in."""
_LOOKED_AT = 1 << 20
"""Elements: the first rows of larger tensors stand for all."""
_OPERATIONS = {
    *("add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "truediv", "floor_divide", "pow"),
    *("radd", "rsub", "rmul", "rdiv", "rtruediv", "rpow", "maximum", "minimum", "fmax", "fmin", "where", "atan2"),
    *("eq", "ne", "lt", "le", "gt", "ge", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "broadcast_tensors"),
}


def structure(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """What an input of two calls shows: `zeros` in the same places, `symmetric` matrices, or `sorted` rows.

    None for equal values, integers and whole numbers, which may be labels.
    """
    if first.numel() < _LEAST or first.shape != second.shape or torch.equal(first, second):
        return None
    square = first.dim() >= 2 and first.shape[-1] == first.shape[-2]
    if first.is_complex():
        # A transform of real numbers is symmetric in its own way.
        mirrored = [first.flip(-1).roll(1, -1)] if first.dim() else []
        mirrored += [first.mT] if square else []
        if any(torch.allclose(first, other.conj()) for other in mirrored):
            return "symmetric"
        return structure(*(torch.view_as_real(tensor.resolve_conj()) for tensor in (first, second)))
    if not first.is_floating_point():
        return None
    finite = bool(first.isfinite().all())
    left, right = (_some(tensor).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for tensor in (first, second))
    if torch.equal(left, right) or bool((left == left.round()).all()):
        return None
    zeros = left == 0
    if finite and bool(zeros.any()) and torch.equal(zeros, right == 0):
        return "zeros"
    if square and left.shape[-1] >= _LEAST and torch.equal(left, left.mT):
        return "symmetric"
    if not left.dim() or left.shape[-1] < 2 * _LEAST:
        return None
    steps = left.diff(dim=-1)
    return "sorted" if bool((steps >= 0).all()) or bool((steps <= 0).all()) else None


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """As many of the first entries along the first dimension as are looked at, whole matrices at least."""
    if tensor.dim() < 2 or (tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]):
        return tensor
    return tensor[: max(1, _LOOKED_AT // max(1, tensor[0].numel()))]


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
        size = narrow.numel()
        if narrow.dim() != 1 or size < 2:
            return False
        given = {tensor.data_ptr() for tensor in self._inputs}
        square = wide.shape == (size, size) and given.issuperset((wide.data_ptr(), narrow.data_ptr()))
        return square or wide.shape == (size, 1)

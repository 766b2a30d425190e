"""Properties of inputs that an audit reports: a structure that they have in each call, and accidental broadcasts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import decoded

__all__ = ["Broadcasts", "structure"]

_MIN_ELEMENTS = 4
"""Smallest number of elements of a tensor, or of a row, in which a structure is detected."""
_MAX_ELEMENTS = 1 << 20
"""Largest number of elements that are examined; of larger tensors, the first rows represent all."""
_ARITHMETIC = {"add", "sub", "subtract", "mul", "multiply", "div", "divide", "true_divide", "truediv", "floor_divide"}
_REVERSED_ARITHMETIC = {"radd", "rsub", "rmul", "rdiv", "rtruediv", "rpow"}
_OTHER_FUNCTIONS = {"pow", "maximum", "minimum", "fmax", "fmin", "where", "atan2", "broadcast_tensors"}
_COMPARISONS = {"eq", "ne", "lt", "le", "gt", "ge"}
_LOSSES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
_BROADCASTING = _ARITHMETIC | _REVERSED_ARITHMETIC | _OTHER_FUNCTIONS | _COMPARISONS | _LOSSES
"""Functions that broadcast their operands."""


def structure(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """The structure of an input: `zeros` in the same positions of two calls, `symmetric` matrices, or `sorted` rows.

    None for equal values, and for integers and floating-point integers, which may be labels.
    """
    if first.numel() < _MIN_ELEMENTS or first.shape != second.shape:
        return None
    first, second = decoded(first), decoded(second)
    if torch.equal(first, second):
        return None
    square = first.dim() >= 2 and first.shape[-1] == first.shape[-2]
    if first.is_complex():
        # The Fourier transform of real numbers has a Hermitian symmetry.
        mirrored = [first.flip(-1).roll(1, -1)] if first.dim() else []
        mirrored += [first.mT] if square else []
        if any(torch.allclose(first, other.conj()) for other in mirrored):
            return "symmetric"
        return structure(*(torch.view_as_real(tensor.resolve_conj()) for tensor in (first, second)))
    if not first.is_floating_point():
        return None
    finite = bool(first.isfinite().all())
    left, right = (_first_rows(tensor).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for tensor in (first, second))
    if torch.equal(left, right) or bool((left == left.round()).all()):
        return None
    zeros = left == 0
    if finite and bool(zeros.any()) and torch.equal(zeros, right == 0):
        return "zeros"
    if square and left.shape[-1] >= _MIN_ELEMENTS and torch.equal(left, left.mT):
        return "symmetric"
    if not left.dim() or left.shape[-1] < 2 * _MIN_ELEMENTS:
        return None
    steps = left.diff(dim=-1)
    return "sorted" if bool((steps >= 0).all()) or bool((steps <= 0).all()) else None


def _first_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The first entries along the first dimension, up to the number that is examined. Square matrices are not cut."""
    if tensor.dim() < 2 or (tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]):
        return tensor
    return tensor[: max(1, _MAX_ELEMENTS // max(1, tensor[0].numel()))]


class Broadcasts(TorchFunctionMode):
    """Records the first broadcast of a computation that seems to be accidental.

    Two kinds are suspicious: a vector of n elements with a column (n, 1), whose result is a square matrix, and an input
    vector of n elements with an (n, n) input, where either dimension fits. Operands of equal rank are broadcast on
    purpose.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.found: str | None = None
        """Description of the broadcast; None if there is none."""
        self._inputs = list(inputs)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.found is None and getattr(func, "__name__", "").strip("_") in _BROADCASTING:
            given = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, torch.Tensor)]
            for first, second in itertools.pairwise(given):
                wide, narrow = (first, second) if first.dim() >= second.dim() else (second, first)
                if self._is_suspicious(wide, narrow):
                    self.found = f"{func.__name__} of {tuple(first.shape)} and {tuple(second.shape)}"
        return func(*args, **(kwargs or {}))

    def _is_suspicious(self, wide: torch.Tensor, narrow: torch.Tensor) -> bool:
        size = narrow.numel()
        if narrow.dim() != 1 or size < 2:
            return False
        input_memory = {tensor.data_ptr() for tensor in self._inputs}
        are_inputs = input_memory.issuperset((wide.data_ptr(), narrow.data_ptr()))
        is_square_of_inputs = wide.shape == (size, size) and are_inputs
        return is_square_of_inputs or wide.shape == (size, 1)

"""What inputs have in common from one call to the next, beyond shape and dtype."""

from __future__ import annotations

import torch

__all__ = ["structure"]

_LEAST = 4
"""Elements of a tensor, or of a row, that a structure can be seen in."""
_LOOKED_AT = 1 << 20
"""Elements: the first rows of larger tensors stand for all."""


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

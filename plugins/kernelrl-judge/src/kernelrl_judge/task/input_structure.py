"""The structure of inputs: properties that stay the same in each call, beyond shape and dtype.

What is drawn anew for each call may be multiplied. What has a structure may not, since a kernel may rely on it; whether
the task promises that structure is the audit's question.
"""

from __future__ import annotations

import torch

__all__ = ["structure"]

_LEAST = 4
"""Elements of a tensor, or of a row, that a structure can be seen in."""
_LOOKED_AT = 1 << 20
_CLOSE = 1e-3
_MANY_VALUES = 16
"""Whole numbers of fewer values may be labels or truth values."""


def structure(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """What an input of two calls shows: the same values, places of zeros, symmetry, order, rows of one sum or norm,
    whole numbers, or elements that are not finite among others that show nothing; None if nothing.

    Whole numbers of many values, which repeat and show nothing else, are `counts`. Integers and truth values show
    nothing but that they are the same. The first rows of large tensors stand for all.
    """
    if first.numel() < _LEAST or first.shape != second.shape:
        return None
    if torch.equal(first, second):
        return "fixed"
    if first.is_complex():
        return _of_complex(first.resolve_conj(), second.resolve_conj())
    if not first.is_floating_point():
        return None
    if not bool(torch.stack(first.aminmax()).isfinite().all()):
        finite = [tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0) for tensor in (first, second)]
        found = "fixed" if torch.equal(*(tensor.nan_to_num() for tensor in (first, second))) else structure(*finite)
        return "non_finite" if found in (None, "zeros") else found
    left, right = _some(first), _some(second)
    if not bool((left == left.round()).all()):
        return _arrangement(left, right)
    values = len(left.unique())
    many = _MANY_VALUES <= values < left.numel() and _arrangement(left, right) is None
    return "counts" if many else "whole_numbers"


def _of_complex(first: torch.Tensor, second: torch.Tensor) -> str | None:
    """The structure of real and imaginary parts, or that of the numbers: of size 1, symmetric, or those of a transform
    of real numbers."""
    left = _some(first)
    if _ones(left.abs()):
        return "normalised"
    mirrored = [left.flip(-1).roll(1, -1)] if left.dim() else []
    mirrored += [left.mT] if left.dim() >= 2 and left.shape[-1] == left.shape[-2] else []
    if any(torch.allclose(left, other.conj()) for other in mirrored):
        return "symmetric"
    return structure(torch.view_as_real(first), torch.view_as_real(second))


def _arrangement(left: torch.Tensor, right: torch.Tensor) -> str | None:
    zeros = left == 0
    if bool(zeros.any()) and torch.equal(zeros, right == 0):
        return "zeros"
    if left.dim() >= 2 and left.shape[-1] == left.shape[-2] >= _LEAST and torch.equal(left, left.mT):
        return "symmetric"
    if left.dim() == 0 or left.shape[-1] < 2 * _LEAST:
        return None
    if bool((left.diff(dim=-1) >= 0).all()) or bool((left.diff(dim=-1) <= 0).all()):
        return "sorted"
    rows = left.float()
    for dim in {-1, min(1, left.dim() - 1)}:
        if _ones(rows.square().sum(dim)) or (bool((rows >= 0).all()) and _ones(rows.sum(dim))):
            return "normalised"
    return None


def _some(tensor: torch.Tensor) -> torch.Tensor:
    """As many of the first entries along the first dimension as are looked at, whole matrices at least."""
    if tensor.dim() <= 2 or tensor.numel() <= _LOOKED_AT:
        square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1]
        return tensor if square or tensor.dim() < 2 else tensor[: max(1, _LOOKED_AT // max(1, tensor[0].numel()))]
    return tensor[: max(1, _LOOKED_AT // max(1, tensor[0].numel()))]


def _ones(values: torch.Tensor) -> bool:
    return bool(((values - 1).abs() < _CLOSE).all())

"""Values with tensors in lists, tuples and dicts: their leaves, and where tensors lie in shared memory.

Inputs have the strides and the alignment that a task gives them, in a candidate as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.values import TensorLeaf

__all__ = [
    "ALIGNMENT",
    "Laid",
    "cloned",
    "distinct",
    "laid_out",
    "laid_out_as",
    "lay_out",
    "leaves",
    "leaves_bytes",
    "mapped",
    "places",
    "real",
    "reals",
    "tensors",
    "total_bytes",
    "widened",
]

ALIGNMENT = 256
"""Bytes: a tensor without an offset begins at a multiple."""


def laid_out(leaf: TensorLeaf, memory: torch.Tensor) -> torch.Tensor:
    """A view of memory of as many elements as a leaf spans."""
    return memory.view(leaf.shape) if leaf.strides is None else memory.as_strided(leaf.shape, leaf.strides)


def laid_out_as(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Values in the layout of a tensor of their shape; what repeats there repeats here."""
    if not values.numel() or values.stride() == like.stride():
        return values
    leaf = TensorLeaf("", tuple(values.shape), "", 0, tuple(like.stride()))
    found = torch.empty(leaf.span, dtype=values.dtype, device=values.device).as_strided(leaf.shape, like.stride())
    distinct(found).copy_(distinct(values, like))
    return found


def distinct(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor without its repetitions along dimensions that it, or another of its shape, was expanded by."""
    strides = (tensor if like is None else like).stride()
    found = tensor
    for place in [place for place, stride in enumerate(strides) if stride == 0 and tensor.shape[place] > 1]:
        found = found.narrow(place, 0, 1)
    return found


def cloned(value: Any) -> Any:
    """A copy of the value, in which tensors keep their layouts."""
    return mapped(value, lambda tensor: laid_out_as(tensor.clone(), tensor))


@attrs.frozen
class Laid:
    """How values lie one after the other."""

    tree: Any
    """`TensorLeaf` in the place of each tensor."""
    end: int
    """Bytes in all."""
    chunks: list[tuple[TensorLeaf, torch.Tensor]]
    """Each tensor with its place."""


def lay_out(values: Any, device: str, end: int = 0, *, strided: bool = True) -> Laid:
    """Give each tensor its place on a device, one after the other from `end` on.

    Args:
        strided: keep the strides of tensors, and how they are aligned.
    """
    chunks: list[tuple[TensorLeaf, torch.Tensor]] = []

    def place(tensor: torch.Tensor) -> TensorLeaf:
        nonlocal end
        name, width = str(tensor.dtype).removeprefix("torch."), tensor.element_size()
        offset, strides = end, None
        if strided and tensor.numel():
            offset += tensor.storage_offset() * width % ALIGNMENT
            strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        leaf = TensorLeaf(name, tuple(tensor.shape), device, offset, strides)
        chunks.append((leaf, tensor.detach()))
        end = -(-(offset + leaf.span * width) // ALIGNMENT) * ALIGNMENT
        return leaf

    return Laid(mapped(values, place, key=str), end, chunks)


def places(expected: Any, copies: int, device: str) -> tuple[list[Any], int]:
    """Where the outputs of several equal calls belong: a tree of `TensorLeaf` for each call, and the bytes in all."""
    laid = lay_out([expected] * copies, device, strided=False)
    return laid.tree, laid.end


def leaves_bytes(value: Any) -> int:
    """Bytes that the tensors of a value need in the shared memory."""
    return lay_out(value, "cpu", strided=False).end


def mapped(value: Any, function: Callable[[torch.Tensor], Any], *, key: Callable[[Any], Any] = lambda key: key) -> Any:
    """The value with what a function makes of each tensor; a tuple in the place of one with names.

    Args:
        key: makes the keys of dicts.
    """
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        items = [mapped(item, function, key=key) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key(name): mapped(item, function, key=key) for name, item in value.items()}
    return value


def reals(value: Any) -> Any:
    """The value with two real numbers in the place of each complex one."""
    return mapped(value, real)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, two real ones for each complex one; a view where there is one."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in its order."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def total_bytes(value: Any) -> int:
    """Bytes of the elements of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(value))


def leaves(*values: Any, path: str = "") -> Iterator[tuple[Any, ...]]:
    """Leaves of values of one structure, after their path. Keys may be texts in all but the first."""
    first = values[0]
    if isinstance(first, list | tuple):
        for index, items in enumerate(zip(*values, strict=True)):
            yield from leaves(*items, path=f"{path}[{index}]")
    elif isinstance(first, dict):
        for key in first:
            items = [value[key] if key in value else value[str(key)] for value in values]
            yield from leaves(*items, path=f"{path}[{key!r}]")
    else:
        yield path, *values


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in double precision; integers as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor

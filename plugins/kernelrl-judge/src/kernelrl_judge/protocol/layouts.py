"""Where tensors lie in shared memory, one after the other.

Inputs have the strides and the alignment that a task gives them, in a candidate as in the reference.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.values import TensorLeaf

__all__ = [
    "ALIGNMENT",
    "Laid",
    "Layouts",
    "distinct",
    "laid_out",
    "laid_out_as",
    "leaves_bytes",
    "places",
    "strides_of",
]

ALIGNMENT = 256
"""Bytes: a tensor without an offset begins at a multiple."""
_FEW = 8
"""Calls that are laid out in no time."""


def strides_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Strides of a tensor, in elements; None where it is contiguous."""
    return None if tensor.is_contiguous() or not tensor.numel() else tuple(tensor.stride())


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


def places(expected: Any, copies: int, device: str) -> tuple[list[Any], int]:
    """Where the outputs of several equal calls belong: a tree of `TensorLeaf` for each call, and the bytes in all."""
    trees: list[Any] = []
    end = 0
    for _ in range(copies):
        tree, end = _lay_out(expected, device, [], end)
        trees.append(tree)
    return trees, end


@attrs.frozen
class Laid:
    """How values lie one after the other."""

    tree: Any
    """`TensorLeaf` in the place of each tensor."""
    end: int
    """Bytes in all."""
    leaves: list[TensorLeaf]
    tensors: list[torch.Tensor]

    def chunks(self) -> Iterable[tuple[TensorLeaf, torch.Tensor]]:
        """Each tensor with its place."""
        return zip(self.leaves, self.tensors, strict=True)


class Layouts:
    """Lays out values for a device, with the strides that tensors have.

    The windows of a candidate are laid out alike: to describe hundreds of tensors anew takes milliseconds each time.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._outline: list[Any] | None = None
        self._known: Laid | None = None

    def of(self, values: Any) -> Laid:
        """Where values lie, that of the last window among them again if these are like its own."""
        tensors = _of_window(values)
        outline = [*map(type, values), *map(_described, tensors)] if tensors else None
        known = self._known
        if outline is not None and known is not None and outline == self._outline:
            return Laid(known.tree, known.end, known.leaves, [tensor.detach() for tensor in tensors])
        chunks: list[tuple[TensorLeaf, torch.Tensor]] = []
        tree, end = _lay_out(values, self._device, chunks, strided=True)
        found = Laid(tree, end, [leaf for leaf, _ in chunks], [tensor for _, tensor in chunks])
        if outline is not None:
            self._outline, self._known = outline, attrs.evolve(found, tensors=[])
        return found


def _of_window(values: Any) -> list[torch.Tensor]:
    """The tensors of calls of one structure that have nothing else; none where that is not so, or calls are few."""
    if type(values) is not list or len(values) < _FEW:
        return []
    if not all(type(arguments) in (list, tuple) and len(arguments) == len(values[0]) for arguments in values):
        return []
    found = [tensor for arguments in values for tensor in arguments]
    return found if all(isinstance(tensor, torch.Tensor) for tensor in found) else []


def _described(tensor: torch.Tensor) -> tuple[torch.Size, torch.dtype, tuple[int, ...], int]:
    return tensor.shape, tensor.dtype, tensor.stride(), _misaligned(tensor)


def _misaligned(tensor: torch.Tensor) -> int:
    """By how many bytes a tensor begins behind a place where memory may begin."""
    return tensor.storage_offset() * tensor.element_size() % ALIGNMENT if tensor.numel() else 0


def leaves_bytes(value: Any) -> int:
    """Bytes that the tensors of a value need in the shared memory."""
    return _lay_out(value, "cpu", [])[1]


def _lay_out(
    values: Any, device: str, chunks: list[tuple[TensorLeaf, torch.Tensor]], end: int = 0, *, strided: bool = False
) -> tuple[Any, int]:
    """Give each tensor its place, one after the other from `end` on; returns the tree and where it ends.

    Args:
        strided: keep the strides of tensors, and how they are aligned.
    """
    layout = _Layout(device, chunks, end, strided)
    return layout.place(values), layout.end


class _Layout:
    # Not a function within a function: one that calls itself keeps gigabytes of tensors until the garbage collector
    # comes.
    def __init__(self, device: str, chunks: list[tuple[TensorLeaf, torch.Tensor]], end: int, strided: bool) -> None:
        self._device = device
        self._chunks = chunks
        self._strided = strided
        self.end = end

    def place(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            plain = value.detach()
            name, strides = str(plain.dtype).removeprefix("torch."), strides_of(plain) if self._strided else None
            offset = self.end + (_misaligned(plain) if self._strided else 0)
            leaf = TensorLeaf(name, tuple(plain.shape), self._device, offset, strides)
            self._chunks.append((leaf, plain))
            self.end = -(-(offset + leaf.span * plain.element_size()) // ALIGNMENT) * ALIGNMENT
            return leaf
        if isinstance(value, list | tuple):
            placed = [self.place(item) for item in value]
            return tuple(placed) if type(value) is tuple else placed
        if isinstance(value, dict):
            return {str(key): self.place(item) for key, item in value.items()}
        return value

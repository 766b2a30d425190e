"""Values with tensors in lists, tuples and dicts: their leaves, and the places of their tensors in shared memory.

Inputs have the strides and the alignment that a task gives them, in a candidate as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.plain_values import plain, sequence_as
from kernelrl_judge.protocol.values import ObjectLeaf, TensorLeaf, encode_tree

__all__ = [
    "ALIGNMENT",
    "Laid",
    "aligned",
    "cloned",
    "decoded",
    "distinct",
    "laid_out",
    "laid_out_as",
    "lay_out",
    "leaves",
    "leaves_bytes",
    "mapped",
    "message_bytes",
    "ordered_as",
    "places",
    "real",
    "reals",
    "tensors",
    "total_bytes",
    "widened",
]

ALIGNMENT = 256
"""In bytes: a tensor whose storage offset is 0 begins at a multiple of it."""


def aligned(offset: int) -> int:
    """The next multiple of `ALIGNMENT` at or after an offset."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def laid_out(leaf: TensorLeaf, memory: torch.Tensor) -> torch.Tensor:
    """A view of memory, which has `leaf.span` elements, in the shape and strides of a leaf."""
    return memory.view(leaf.shape) if leaf.strides is None else memory.as_strided(leaf.shape, leaf.strides)


def laid_out_as(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Values in the strides of another tensor of their shape, with its expanded dimensions."""
    if not values.numel() or values.stride() == like.stride():
        return values
    leaf = TensorLeaf("", tuple(values.shape), "", 0, tuple(like.stride()))
    found = torch.empty(leaf.span, dtype=values.dtype, device=values.device).as_strided(leaf.shape, like.stride())
    distinct(found).copy_(distinct(values, like))
    return found


def distinct(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The tensor without the repetitions along expanded dimensions.

    Args:
        like: a tensor of the same shape whose expanded dimensions count, in place of the tensor's own.
    """
    strides = (tensor if like is None else like).stride()
    found = tensor
    for dimension, stride in enumerate(strides):
        if stride == 0 and tensor.shape[dimension] > 1:
            found = found.narrow(dimension, 0, 1)
    return found


def cloned(value: Any) -> Any:
    """A copy of the value in which tensors keep their strides."""
    return mapped(value, lambda tensor: laid_out_as(tensor.clone(), tensor))


@attrs.frozen
class Laid:
    """Places of the tensors of a value, one after the other."""

    tree: Any
    """The plain form of the value with a `TensorLeaf` for each tensor."""
    end: int
    """Offset after the last tensor, in bytes."""
    chunks: list[tuple[TensorLeaf, torch.Tensor]]
    """Each tensor with its place."""


def lay_out(values: Any, device: str, end: int = 0, *, strided: bool = True) -> Laid:
    """Choose a place on a device for each tensor, one after the other from offset `end` on.

    Args:
        strided: keep the strides and the alignment of tensors.

    Raises:
        kernelrl_judge.protocol.plain_values.NotCarried: the protocol cannot carry a value.
    """
    chunks: list[tuple[TensorLeaf, torch.Tensor]] = []

    def place(tensor: torch.Tensor) -> TensorLeaf:
        nonlocal end
        dtype = str(tensor.dtype).removeprefix("torch.")
        width = tensor.element_size()
        offset = end
        strides = None
        if strided and tensor.numel():
            offset += int(tensor.storage_offset()) * width % ALIGNMENT
            strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        leaf = TensorLeaf(dtype, tuple(tensor.shape), device, offset, strides)
        chunks.append((leaf, tensor.detach()))
        end = aligned(offset + leaf.span * width)
        return leaf

    return Laid(mapped(plain(values), place), end, chunks)


def places(expected: Any, copies: int, device: str) -> tuple[list[Any], int]:
    """Places for the outputs of several calls: a tree of `TensorLeaf` for each call, and the total of bytes."""
    laid = lay_out([expected] * copies, device, strided=False)
    return laid.tree, laid.end


def leaves_bytes(value: Any) -> int:
    """Number of bytes that the tensors of a value need in the shared memory."""
    return lay_out(value, "cpu", strided=False).end


def message_bytes(value: Any) -> int:
    """Number of bytes of the message that describes a value."""
    return len(encode_tree(lay_out(value, "cpu", strided=False).tree))


def mapped(value: Any, function: Callable[[torch.Tensor], Any]) -> Any:
    """The value with a function applied to each tensor. Dicts and sequences of other classes become plain ones."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return sequence_as(value, [mapped(item, function) for item in value])
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    if isinstance(value, ObjectLeaf):
        return ObjectLeaf(value.kind, mapped(value.parts, function))
    return value


def ordered_as(value: Any, like: Any) -> Any:
    """The value with the keys of its dicts in the order of those of another value, where both have the same keys."""
    if type(value) in (list, tuple) and isinstance(like, list | tuple) and len(value) == len(like):
        return type(value)(map(ordered_as, value, like))
    if type(value) is dict and isinstance(like, dict) and value.keys() == like.keys():
        return {key: ordered_as(value[key], like[key]) for key in like}
    return value


def reals(value: Any) -> Any:
    """The value with two real numbers for each complex number, and with wider numbers for float8 and complex32."""
    return mapped(value, lambda tensor: decoded(real(tensor)))


def decoded(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in single precision if torch does not compute with its dtype: a float8 kind, or complex32."""
    if tensor.dtype is torch.complex32:
        return tensor.to(torch.complex64)
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 1 else tensor


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with two real numbers for each complex number; a view if possible."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in the order of the value."""
    return [leaf for _, leaf in leaves(value) if isinstance(leaf, torch.Tensor)]


def total_bytes(value: Any) -> int:
    """Number of bytes of the elements of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors(value))


def leaves(*values: Any, path: str = "") -> Iterator[tuple[Any, ...]]:
    """Tuples of a path and the leaves at that path in several values of one structure."""
    first = values[0]
    if isinstance(first, list | tuple):
        for index, items in enumerate(zip(*values, strict=True)):
            yield from leaves(*items, path=f"{path}[{index}]")
    elif isinstance(first, dict):
        for key in first:
            yield from leaves(*[value[key] for value in values], path=f"{path}[{key!r}]")
    else:
        yield path, *values


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in double precision; integers are unchanged."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor

"""Values with tensors in lists, tuples and dicts: their leaves, and functions of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["leaves", "mapped", "real", "reals", "tensors", "total_bytes", "widened"]


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

"""Values with tensors in lists, tuples and dicts: their leaves, and functions of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["leaves", "mapped", "real", "reals", "tensors"]


def mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with what a function makes of each tensor, and copies of what is not one."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return copy.deepcopy(value)


def reals(value: Any) -> Any:
    """The value with two real numbers in the place of each complex one."""
    return mapped(value, real)


def real(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, two real ones for each complex one; a view where there is one."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors of a value, in its order."""
    return [leaf for _, leaf, _, _ in leaves(value, value, value) if isinstance(leaf, torch.Tensor)]


def leaves(first: Any, second: Any, third: Any, path: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """Leaves of three values of one structure, with their path."""
    if isinstance(first, list | tuple):
        for index, items in enumerate(zip(first, second, third, strict=True)):
            yield from leaves(*items, f"{path}[{index}]")
    elif isinstance(first, dict):
        for key, item in first.items():
            yield from leaves(
                item, second[key], third[str(key)] if str(key) in third else third[key], f"{path}[{key!r}]"
            )
    else:
        yield path, first, second, third

"""Values with tensors in lists, tuples and dicts: their leaves, and functions of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernelrl_judge.protocol.layouts import laid_out_as

__all__ = ["cast", "cloned", "detached", "leaves", "mapped", "placed", "real", "reals", "same", "tensors", "widened"]


def mapped(value: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The value with what a function makes of each tensor, and copies of what is not one."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list | tuple):
        return type(value)(mapped(item, function) for item in value)
    if isinstance(value, dict):
        return {key: mapped(item, function) for key, item in value.items()}
    return copy.deepcopy(value)


def cloned(value: Any) -> Any:
    """A copy of the value, in which tensors keep their layouts."""
    return mapped(value, lambda tensor: laid_out_as(tensor.clone(), tensor))


def cast(value: Any, dtype: torch.dtype) -> Any:
    """The value with its floating-point tensors in another dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, list | tuple):
        return type(value)(cast(item, dtype) for item in value)
    if isinstance(value, dict):
        return {key: cast(item, dtype) for key, item in value.items()}
    return value


def placed(value: Any, device: str) -> Any:
    """The value with its tensors on a device."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, list | tuple):
        return type(value)(placed(item, device) for item in value)
    if isinstance(value, dict):
        return {key: placed(item, device) for key, item in value.items()}
    return value


def detached(value: Any) -> Any:
    """The value with copies of its tensors that belong to no graph; a tuple in the place of one with names."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return (
            type(value)(detached(item) for item in value)
            if type(value) in (list, tuple)
            else tuple(detached(item) for item in value)
        )
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    return value


def same(left: Any, right: Any) -> bool:
    """Whether the tensors of two values of one structure are equal."""
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, list | tuple):
        return all(map(same, left, right))
    if isinstance(left, dict):
        return all(same(value, right[key]) for key, value in left.items())
    return True


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


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in double precision; integers as they are."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() else tensor

"""Inputs of which a reference reads a part alone, as rows of a table: what a call works on is no more than that."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.reference import Reference
from kernelrl_judge.trees import mapped, tensors

__all__ = ["as_read"]

_GATHERING = {"__getitem__", "index_select", "gather", "take", "take_along_dim", "embedding"}
_ASKED = {"size", "dim", "numel", "stride", "ndimension", "is_contiguous", "__len__", "is_floating_point", "__get__"}


class _Reads(TorchFunctionMode):
    """Counts the elements that are gathered of some tensors."""

    def __init__(self, given: list[torch.Tensor]) -> None:
        super().__init__()
        self._given = given
        self.elements = dict.fromkeys(range(len(given)), 0)
        """By number; none of those that are taken whole."""
        self.fault: Exception | None = None
        """Raised here, and not by the reference."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        try:
            self._count(func, args, kwargs, found)
        except Exception as error:
            self.fault = error
            raise
        return found

    def _count(self, func: Any, args: Any, kwargs: Any, found: Any) -> None:
        name = getattr(func, "__name__", "")
        if name in _ASKED and not isinstance(found, torch.Tensor):
            return
        taken = tensors([args, kwargs])
        table = next((tensor for tensor in taken if tensor.is_floating_point()), None)
        for place, tensor in enumerate(self._given):
            if place not in self.elements or not any(tensor is other for other in taken):
                continue
            if name in _GATHERING and tensor is table and isinstance(found, torch.Tensor):
                self.elements[place] += found.numel()
            else:
                del self.elements[place]


def as_read(reference: Reference, inputs: list[Any]) -> list[Any]:
    """Inputs of a call, with tensors that hold nothing in the place of those of which the reference reads less than a
    whole, as many elements as it reads."""
    if "read" not in reference.facts:
        reference.facts["read"] = _read(reference)
    read: dict[int, int] = reference.facts["read"]
    if not read:
        return inputs
    places = iter(range(len(tensors(inputs))))

    def narrowed(tensor: torch.Tensor) -> torch.Tensor:
        elements = read.get(next(places), tensor.numel())
        return torch.empty(min(elements, tensor.numel()), dtype=tensor.dtype, device="meta")

    return [mapped(value, narrowed) for value in inputs]


def _read(reference: Reference) -> dict[int, int]:
    inputs = reference.inputs(0)
    given = tensors(inputs)
    reads = _Reads(given)
    try:
        with torch.no_grad(), reads:
            reference.model(*inputs)
    except Exception:  # whatever a reference raises that cannot be looked at
        if reads.fault is not None:
            raise reads.fault from None
        return {}
    finally:
        reference.restore()
    # What nobody takes, a reference may read in a way that is not seen.
    return {place: count for place, count in reads.elements.items() if 0 < count < given[place].numel()}

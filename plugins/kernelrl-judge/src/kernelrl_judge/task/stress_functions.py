"""What the functions that a reference calls say about inputs, for the probe `stress`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["BOUNDING", "COMPARING", "Functions", "is_whole"]

_CHECKED = {"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"}
_LEAVING_OUT = {"nll_loss", "cross_entropy", "embedding_bag"}
"""Functions of integers that can be told to ignore one of them."""
_INDEXING = {
    *("__getitem__", "__setitem__", "index_select", "index_add", "index_add_", "index_put", "index_put_", "take"),
    *("gather", "scatter", "scatter_", "scatter_add", "scatter_add_", "embedding", "one_hot", *_LEAVING_OUT),
    *("index_copy", "index_copy_", "index_fill", "index_fill_", "index_reduce", "index_reduce_", "put_", "bincount"),
    *("scatter_reduce", "scatter_reduce_", "take_along_dim", "multi_margin_loss", "ctc_loss"),
}
BOUNDING = {"clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_max", "hardtanh", "hardtanh_"}
COMPARING = {f"{before}{name}{before}" for name in ("gt", "ge", "lt", "le") for before in ("", "__")}
"""Functions that compare by size."""
_EQUALLING = {f"{before}{name}{before}" for name in ("eq", "ne") for before in ("", "__")}
_ALIKE = _EQUALLING | {"equal", "isclose", "isin", "unique", "unique_consecutive"}
_MOST_NAMED = 64
"""Numbers of a tensor that others are compared with, which are those that a task names."""
_SAYING_SAME = _EQUALLING | {"isin"}
_FINDING = COMPARING | _SAYING_SAME | {"bucketize", "searchsorted"}
_IGNORING = ("ignore_index", "padding_idx")
_FAR = {"hypot", "hypot_"}
_FAR_BOUND = 2.0**80
"""Of functions that are there for numbers whose squares overflow."""
_ROUNDING = {"round", "round_"}
_MOST_BOUND = 1e30
_OF_NUMBERS = {"nan_to_num", "nan_to_num_", "isnan", "isfinite", "isinf", "isposinf", "isneginf"}
_OF_NUMBERS |= {"nansum", "nanmean", "nanmedian", "nanquantile", "fmax", "fmin"}
_CONVERTING = {"to", "type", "long", "int", "short", "type_as"}
_DISTINGUISHING = {
    *("__setitem__", "index_put", "index_put_", "index_copy", "index_copy_", "scatter", "scatter_", "put_"),
    *("kthvalue", "median", "nanmedian", "mode"),
}
_EXTREMES = {"argmax", "argmin"}
_SORTING = {"sort", "argsort", "topk"}
_NO_INDICES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds integers."""
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


class Functions(TorchFunctionMode):
    """Looks for functions that end a GPU's context when values are out of their range, for those whose results depend
    on an order that nobody promises where values are equal, for convolutions, bounds, rounding, numbers that others are
    compared with, and questions for what is no number.

    Args:
        held: tensors whose numbers a task names: its buffers.
    """

    def __init__(self, held: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()
        self._held = {_place(tensor) for tensor in held}
        self._checked = self._indexes = self._makes_integers = False
        self.convolves = False
        """Whether something is convolved, which may be done by another algorithm than sums of products."""
        self.distinguishes = self.extremes = self.sorts = self.places = False
        """Whether results depend on places, and values may be equal: in general, of the first extreme, of an order, of
        an extreme beside its value, of which the value alone may be used."""
        self.alike = False
        """Whether tensors are compared with tensors for being equal."""
        self.asks_for_numbers = False
        """Whether it is asked what is no number, or what is infinite."""
        self.rounds = False
        """Whether fractions are rounded to whole numbers."""
        self.bound = 0.0
        """Largest number that something is bounded by, or compared with."""
        self.compared: set[float] = set()
        """Numbers that fractions are compared with."""
        self.singled_out: set[tuple[int, int]] = set()
        """Whole numbers that integers are compared with, each with how many of them there are."""
        self.ignored: set[int] = set()
        """Whole numbers that a function is told to ignore."""
        self.indexes_beside = False
        """Whether a function that cannot be told so takes integers as places."""

    @property
    def hazard(self) -> bool:
        """Whether other values of fractions may be refused, or be indices out of range, which ends a GPU's context."""
        return self._checked or (self._indexes and self._makes_integers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        self._checked |= name in _CHECKED
        self._indexes |= name in _INDEXING
        self.convolves |= name.startswith("conv")
        self.extremes |= name in _EXTREMES
        self.sorts |= name in _SORTING and not kwargs.get("stable")
        self.alike |= name in _ALIKE and (len(_tensors(args)) > 1 or name.startswith("unique"))
        self.indexes_beside |= name in _INDEXING - _LEAVING_OUT
        if name in _LEAVING_OUT:
            ignored = [kwargs.get(word) for word in _IGNORING]
            self.ignored |= {number for number in ignored if isinstance(number, int)}
        if name in _FAR:
            self.bound = max(self.bound, _FAR_BOUND)
        self.distinguishes |= name in _DISTINGUISHING
        self.places |= name in ("max", "min") and isinstance(found, tuple)
        self.asks_for_numbers |= name in _OF_NUMBERS
        self.rounds |= name in _ROUNDING
        given = args[0] if args else None
        numbers = [value for value in (*args, *kwargs.values()) if isinstance(value, int | float)]
        numbers = [number for number in numbers if not isinstance(number, bool)]
        if name in _FINDING and (named := self._named(name, _tensors(args))):
            given, numbers = named
        fractions = isinstance(given, torch.Tensor) and given.is_floating_point()
        if name in BOUNDING or (name in _FINDING and fractions):
            limits = [float(abs(number)) for number in numbers if abs(number) <= _MOST_BOUND]
            if name in BOUNDING | COMPARING:
                self.bound = max([self.bound, *limits])
            if name not in BOUNDING:
                self.compared |= {float(number) for number in numbers if abs(number) <= _MOST_BOUND}
        if name == "histc":
            ends = (*args[2:4], kwargs.get("min"), kwargs.get("max"))
            self.compared |= {float(number) for number in ends if isinstance(number, int | float)}
        if name in _FINDING and isinstance(given, torch.Tensor) and is_whole(given):
            offs = (0,) if name in _SAYING_SAME else (-1, 0, 1)
            whole = [number for number in numbers if isinstance(number, int)]
            self.singled_out |= {(number + off, given.numel()) for number in whole for off in offs}
        if name in _CONVERTING and isinstance(found, torch.Tensor) and isinstance(given, torch.Tensor):
            self._makes_integers |= given.is_floating_point() and found.dtype not in _NO_INDICES
        return found

    def _named(self, name: str, both: list[torch.Tensor]) -> tuple[torch.Tensor, list[int | float]] | None:
        """A tensor, and the numbers of a small one that it is compared with; None where nobody names them. What is
        no buffer's may be made of the inputs, unless whole numbers are asked whether they are the same."""
        if len(both) != 2:
            return None
        few, many = sorted(both, key=torch.Tensor.numel)
        if few.numel() > min(_MOST_NAMED, many.numel() - 1) or few.is_complex():
            return None
        if not (name in _SAYING_SAME and is_whole(few)) and _place(few) not in self._held:
            return None
        return many, few.flatten().tolist()

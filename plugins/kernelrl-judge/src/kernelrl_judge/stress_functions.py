"""What the functions that a reference calls say about inputs, for the probe `stress`."""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["Functions"]

_CHECKED = {"binary_cross_entropy", "multinomial", "bernoulli", "bernoulli_"}
_INDEXING = {
    *("__getitem__", "__setitem__", "index_select", "index_add", "index_add_", "index_put", "index_put_", "take"),
    *(
        "gather",
        "scatter",
        "scatter_",
        "scatter_add",
        "scatter_add_",
        "embedding",
        "one_hot",
        "nll_loss",
        "cross_entropy",
    ),
}
_BOUNDING = {"clamp", "clamp_", "clip", "clip_", "clamp_min", "clamp_max", "hardtanh", "hardtanh_"}
_COMPARING = {f"{before}{name}{before}" for name in ("gt", "ge", "lt", "le") for before in ("", "__")}
_EQUALLING = {f"{before}{name}{before}" for name in ("eq", "ne") for before in ("", "__")}
_ROUNDING = {"round", "round_"}
_MOST_BOUND = 1e30
_OF_NUMBERS = {"nan_to_num", "nan_to_num_", "isnan", "isfinite", "isinf", "isposinf", "isneginf"}
_OF_NUMBERS |= {"nansum", "nanmean", "nanmedian", "nanquantile"}
_CONVERTING = {"to", "type", "long", "int", "short", "type_as"}
_DISTINGUISHING = {
    *("__setitem__", "index_put", "index_put_", "index_copy", "index_copy_", "scatter", "scatter_", "put_"),
    *("sort", "argsort", "msort", "topk", "kthvalue", "median", "nanmedian", "mode", "argmax", "argmin"),
}
_NO_INDICES = (torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64)


class Functions(TorchFunctionMode):
    """Looks for functions that end a GPU's context when values are out of their range, for those whose results depend
    on an order that nobody promises where values are equal, for convolutions, bounds, rounding, numbers that others are
    compared with, and questions for what is no number."""

    def __init__(self) -> None:
        super().__init__()
        self._checked = self._indexes = self._makes_integers = self.convolves = self.distinguishes = False
        self.asks_for_numbers = False
        self.rounds = False
        self.bound = 0.0
        """Largest number that something is bounded by, or compared with."""
        self.compared: set[float] = set()
        """Numbers that fractions are compared with."""

    @property
    def hazard(self) -> bool:
        return self._checked or (self._indexes and self._makes_integers)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        self._checked |= name in _CHECKED
        self._indexes |= name in _INDEXING
        self.convolves |= name.startswith("conv")
        self.distinguishes |= name in _DISTINGUISHING or (name in ("max", "min") and isinstance(found, tuple))
        self.asks_for_numbers |= name in _OF_NUMBERS
        self.rounds |= name in _ROUNDING
        given = args[0] if args else None
        fractions = isinstance(given, torch.Tensor) and given.is_floating_point()
        if name in _BOUNDING or (name in _COMPARING | _EQUALLING and fractions):
            numbers = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, int | float)]
            limits = [float(abs(number)) for number in numbers if abs(number) <= _MOST_BOUND]
            if name not in _EQUALLING:
                self.bound = max([self.bound, *limits])
            if name not in _BOUNDING:
                self.compared |= {float(number) for number in numbers if abs(number) <= _MOST_BOUND}
        if name in _CONVERTING and isinstance(found, torch.Tensor) and isinstance(given, torch.Tensor):
            self._makes_integers |= given.is_floating_point() and found.dtype not in _NO_INDICES
        return found

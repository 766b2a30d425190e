"""Ranges of inputs that a task declares by drawing them, for the probe `stress`.

An input that `torch.randint` has drawn may hold any numbers of its range, each end and duplicates among them. Truth
values that come of a draw, each of its own, may all be false, or all be true: those of `torch.bernoulli`, and what is
drawn compared with a number or with another draw. That holds for views, copies and conversions as well, and for nothing
else that is made of them, or that they are made into. What else is known of integers is what a call shows, and a kernel
may rely on it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.stress_functions import COMPARING

__all__ = ["Range", "at_ends", "declared", "drawn_from", "is_truth"]

Range = tuple[int, int]
"""The smallest number, and the first above the largest."""
_MOST_EXACT = 256
"""Up to which every floating-point type has all whole numbers."""
_APART = 16
"""Distance of numbers that are singled out, where there is room."""
_TRUTH: Range = (0, 2)
_DRAWN = {"rand", "randn", "rand_like", "randn_like", "uniform_", "normal_"}
_TOSSED = {"bernoulli", "bernoulli_"}
_CONVERTED = {"clone", "contiguous", "detach", "to", "type", "cpu", "cuda", "pin_memory"}
_CONVERTED |= {"bool", "int", "long", "half", "bfloat16", "float", "double"}
"""Functions whose results have the same numbers."""
_ARRANGED = {"view", "reshape", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze", "__get__"}
_ARRANGED |= {"permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis"}
"""Functions whose results are all of their numbers in another shape; and attributes."""
_NEGATED = {"logical_not", "__invert__", "bitwise_not"}
_ASKED = {"size", "dim", "numel", "nelement", "stride", "ndimension", "is_contiguous", "__len__", "is_floating_point"}


def declared(draw: Callable[[], list[Any]]) -> list[Range | None] | None:
    """The range of each tensor that `draw` makes, None for one without; None if none has one."""
    watch = _Draws()
    with watch:
        made = tensors(draw())
    known = [watch.known(tensor) for tensor in made]
    origins = [found.origin for found in known if found is not None]
    limits = [found.limits if found is not None and origins.count(found.origin) == 1 else None for found in known]
    found = [
        limit if limit is not None and _is_exact(tensor, limit) else None
        for tensor, limit in zip(made, limits, strict=True)
    ]
    return found if any(found) else None


def _is_exact(tensor: torch.Tensor, limits: Range) -> bool:
    """Whether the tensor's type has all numbers of a range."""
    return not tensor.is_floating_point() or max(map(abs, limits)) <= _MOST_EXACT


def is_truth(limits: Range | None) -> bool:
    """Whether a range is that of truth values, of which every draw has each."""
    return limits is not None and limits[1] - limits[0] <= _TRUTH[1]


def at_ends(
    tensor: torch.Tensor, limits: Range, singled_out: Sequence[int] = (), *, leaves: bool = False
) -> torch.Tensor:
    """Numbers of a range: a third of the rows hold its last, a third its first, and the others few numbers each, or
    truth values as they were.

    Args:
        singled_out: numbers that stand among integers as well, each at regular distances.
        leaves: whether those out of range do, too.
    """
    low, high = limits
    values = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    if is_truth(limits):
        values.copy_(tensor)
    else:
        few = torch.randint(low, high, (4,), device=tensor.device)
        values.copy_(few[torch.randint(4, tensor.shape, device=tensor.device)])
    rows = values if tensor.dim() and tensor.shape[0] > 2 else values.view(-1)
    third = -(-len(rows) // 3)
    rows[:third] = high - 1
    rows[third : 2 * third] = low
    if not (is_truth(limits) or tensor.is_floating_point()):
        known = torch.iinfo(tensor.dtype)
        least, most = (known.min, known.max) if leaves else (low, high - 1)
        numbers = [number for number in singled_out if least <= number <= most]
        for place, number in enumerate(numbers):
            values.view(-1)[place :: max(2 * len(numbers), min(_APART, values.numel() // 2))] = number
    return torch.empty_like(tensor).copy_(values)


@attrs.frozen
class _Draw:
    """What is known of a tensor that was drawn."""

    origin: int
    """Number of the draw."""
    limits: Range | None
    """None of fractions."""
    tensor: weakref.ref[torch.Tensor]
    """What lies there as long as this lives; then the memory may be another's."""


class _Draws(TorchFunctionMode):
    """Remembers what is drawn, by the memory that it lies in, until something else is made of it."""

    def __init__(self) -> None:
        super().__init__()
        self._draws: dict[int, _Draw] = {}
        self._count = 0

    def known(self, tensor: Any) -> _Draw | None:
        """What is known of a tensor, if that is all of what was drawn."""
        found = self._drawn(tensor) if isinstance(tensor, torch.Tensor) else None
        whole = found.tensor() if found is not None else None
        return found if whole is not None and whole.numel() == tensor.numel() else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        given = [draw for tensor in tensors([args, kwargs]) if (draw := self._drawn(tensor)) is not None]
        found = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if not isinstance(found, torch.Tensor):
            if name not in _ASKED and (name != "__get__" or tensors(found)):
                self._forget(given)
            return found
        if name in _DRAWN | _TOSSED or name == "randint":
            self._forget(given)
            self._count += 1
            self._remember(found, self._count, drawn_from(name, args, kwargs))
        elif name in COMPARING and self._are_apart(given, args, found):
            # Who is given one of them beside what was compared knows more.
            self._draws = {
                place: attrs.evolve(draw, origin=given[0].origin) if draw.origin == given[1].origin else draw
                for place, draw in self._draws.items()
            }
            self._remember(found, given[0].origin, _TRUTH)
        elif len(given) != 1 or not args or given[0] is not self.known(args[0]):
            self._forget(given)
        elif _is_kept(name, given[0].limits, found):
            self._remember(found, given[0].origin, given[0].limits)
        elif name in COMPARING and any(isinstance(value, int | float) for value in args):
            self._remember(found, given[0].origin, _TRUTH)
        else:
            self._forget(given)
        return found

    def _are_apart(self, given: list[_Draw], args: tuple[Any, ...], found: torch.Tensor) -> bool:
        """Whether two draws of fractions are compared, one of which has a number for each element of the result."""
        fractions = len(given) == 2 and all(draw.limits is None for draw in given)
        whole = [self.known(tensor) for tensor in args[:2]]
        most = max((tensor.numel() for tensor in args[:2] if isinstance(tensor, torch.Tensor)), default=0)
        return fractions and whole == given and most == found.numel() and given[0].origin != given[1].origin

    def _remember(self, tensor: torch.Tensor, origin: int, limits: Range | None) -> None:
        self._draws[_place(tensor)] = _Draw(origin, limits, weakref.ref(tensor))

    def _drawn(self, tensor: torch.Tensor) -> _Draw | None:
        found = self._draws.get(_place(tensor))
        return found if found is not None and found.tensor() is not None else None

    def _forget(self, draws: list[_Draw]) -> None:
        origins = {draw.origin for draw in draws}
        self._draws = {place: draw for place, draw in self._draws.items() if draw.origin not in origins}


def _is_kept(name: str, limits: Range | None, found: torch.Tensor) -> bool:
    """Whether a function leaves what was drawn in its range."""
    if name in _CONVERTED:
        # Of fractions truth values and integers are something else, and so are truth values of integers.
        whole = limits is not None and found.dtype is not torch.bool
        return is_truth(limits) or whole or found.is_floating_point()
    if name in _NEGATED:
        return is_truth(limits) and found.dtype is torch.bool
    return name in _ARRANGED


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout is torch.strided else id(tensor)


def drawn_from(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Range | None:
    """The range that a function draws from; None of fractions."""
    if name != "randint":
        return _TRUTH if name in _TOSSED else None
    numbers = [value for value in args if isinstance(value, int)]
    if "high" not in kwargs and numbers:
        numbers, kwargs = numbers[:-1], {**kwargs, "high": numbers[-1]}
    low, high = kwargs.get("low", numbers[0] if numbers else 0), kwargs.get("high")
    return (low, high) if isinstance(low, int) and isinstance(high, int) else None

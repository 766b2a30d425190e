"""The domain of a task's inputs: declared by the task, or read from how its inputs are drawn.

A task declares it in its module: `DOMAIN = {"x": "positive", "labels": [0, 63, -100]}`. Keys are parameters of
`forward`.

An undeclared input is understood from the calls of torch in `get_inputs` if it is one random draw that is at most
scaled, shifted, reshaped, sliced or cast, and if no other input uses the same draw. Everything else, such as tables,
sorted keys, offsets, masks with a structure, softmax rows and symmetric matrices, is not: a kernel may rely on the
relation of its elements.
"""

from __future__ import annotations

import difflib
import inspect
import math
from collections.abc import Callable
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.task.source import TaskError

__all__ = ["AS_DRAWN", "Domain", "domains", "drawn_domains"]

_SAME_ELEMENTS = {
    *("clone", "contiguous", "detach", "to", "type", "cpu", "cuda", "float", "double", "half", "bfloat16"),
    *("view", "reshape", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze", "__get__", "requires_grad_"),
    *("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "__getitem__", "pin_memory"),
}
_SCALED = {
    *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "neg"),
    *("div", "idiv", "true_divide", "truediv", "itruediv"),
}
_COMPARED = {"gt", "ge", "lt", "le", "greater", "less", "greater_equal", "less_equal"}
_UNBOUNDED = {"randn", "randn_like", "normal", "normal_"}
_UNIFORM = {"rand", "rand_like", "uniform_"}
_WHOLE = {"randint", "randint_like", "random_"}
_ATTRIBUTE = "_kernelrl_draw"


@attrs.frozen
class Domain:
    """The values that an input may have."""

    kind: str = "as drawn"
    """`numbers`, `uniform` (numbers of an undeclared range), `integers`, `truth`, or `as drawn`: not understood, or
    with a structure."""
    low: float = -math.inf
    high: float = math.inf
    """Smallest and largest value, both included."""
    also: tuple[float, ...] = ()
    """Further values, outside of this range."""
    special: bool = False
    """Whether NaN and infinities are values."""

    @property
    def bounded(self) -> bool:
        """Whether a number has two bounds."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def overlaid(self) -> bool:
        """Whether an input overlay applies."""
        return self.kind == "uniform" or (self.kind == "numbers" and self.low == -math.inf)


AS_DRAWN = Domain()


@attrs.frozen
class _Draw:
    """Origin of a tensor of `get_inputs`."""

    origins: frozenset[int]
    domain: Domain = AS_DRAWN


class _Draws(TorchFunctionMode):
    """Follows random draws through the calls of torch."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        given = [draw for value in tensors([*args, *kwargs.values()]) if (draw := of(value)) is not None]
        if name in _UNBOUNDED | _UNIFORM | _WHOLE | {"bernoulli", "bernoulli_"}:
            self._count += 1
            draw: _Draw | None = _Draw(frozenset({self._count}), _drawn(name, args, kwargs))
        elif given:
            draw = _Draw(frozenset().union(*(one.origins for one in given)), _derived(func, name, args, kwargs, given))
        else:
            draw = None
        changed = [*tensors(found), *(tensors(args[:1]) if name == "__setitem__" else ())]
        for tensor in changed if draw is not None else ():
            setattr(tensor, _ATTRIBUTE, draw)
        return found


def of(tensor: torch.Tensor) -> _Draw | None:
    """Origin of a tensor; None if nothing random is in it."""
    return getattr(tensor, _ATTRIBUTE, None)


def _drawn(name: str, args: Any, kwargs: Any) -> Domain:
    """Domain of a draw."""
    if name in _UNBOUNDED:
        return Domain("numbers")
    if name == "uniform_":
        low, high = [*args[1:3], *(kwargs[key] for key in ("from", "to") if key in kwargs)] or (0.0, 1.0)
        return Domain("numbers", float(low), float(high))
    if name in _UNIFORM:
        return Domain("numbers", 0.0, 1.0)
    if name in _WHOLE:
        limits = [value for value in args[:2] if isinstance(value, int)] if name == "randint" else []
        low, high = (limits if len(limits) == 2 else [0, *limits]) if limits else (kwargs.get("low", 0), None)
        high = kwargs.get("high", high)
        return Domain("integers", int(low), int(high) - 1) if isinstance(high, int) else AS_DRAWN
    return Domain("truth")


def _derived(function: Callable[..., Any], name: str, args: Any, kwargs: Any, given: list[_Draw]) -> Domain:
    """Domain of what a function makes of one draw."""
    before = given[0].domain
    if len(given) > 1 or before.kind == "as drawn":
        return AS_DRAWN
    if name in _SAME_ELEMENTS:
        return before
    # `__radd__` and `mul_` are `add` and `mul`, with operands in another order or in place.
    name = name.strip("_")
    numbers = [value for value in args if isinstance(value, int | float)]
    if before.kind != "numbers" or len(args) > 2 or kwargs or len(numbers) != (name != "neg"):
        return AS_DRAWN
    if name in _COMPARED:
        return Domain("truth")
    if name not in _SCALED:
        return AS_DRAWN
    ends = torch.tensor([before.low, before.high], dtype=torch.float64, device="cpu")
    low, high = sorted(function(*(ends if isinstance(value, torch.Tensor) else value for value in args)).tolist())
    return AS_DRAWN if math.isnan(low) or math.isnan(high) else attrs.evolve(before, low=low, high=high)


def drawn_domains(draw: Callable[[], list[Any]]) -> list[Domain]:
    """Domain of each tensor that `draw` returns.

    Uniform numbers are data or probabilities: they may have other signs and sizes only where no other input is a
    floating-point tensor, and are as drawn elsewhere.
    """
    with _Draws():
        made = tensors(draw())
    draws = [of(tensor) for tensor in made]
    floating = sum(tensor.is_floating_point() for tensor in made)
    found: list[Domain] = []
    for number, (tensor, own) in enumerate(zip(made, draws, strict=True)):
        others = [other for place, other in enumerate(draws) if place != number and other is not None]
        if own is None or own.domain.kind != _kind(tensor) or any(own.origins & other.origins for other in others):
            found.append(AS_DRAWN)
        elif own.domain.kind == "numbers" and own.domain.bounded:
            data = floating == 1 and own.domain.low <= 0
            found.append(Domain("numbers") if data else attrs.evolve(own.domain, kind="uniform"))
        else:
            found.append(own.domain)
    return found


def _kind(tensor: torch.Tensor) -> str:
    """Kind of the values that a type is for."""
    if tensor.is_complex():
        return ""
    return "truth" if tensor.dtype is torch.bool else "numbers" if tensor.is_floating_point() else "integers"


_TINY = 1e-30
_WORDS = {
    "any": Domain("numbers"),
    "as drawn": AS_DRAWN,
    "positive": Domain("numbers", low=_TINY),
    "non-negative": Domain("numbers", low=0.0),
    "probability": Domain("numbers", 0.0, 1.0),
    "special": Domain("numbers", special=True),
    "mask": Domain("truth"),
}


def domains(module: Any, task_id: str, draw: Callable[[], list[Any]]) -> list[Domain]:
    """Domain of each input tensor, in the order of `get_inputs`.

    Args:
        draw: makes the inputs of one call.

    Raises:
        TaskError: `DOMAIN` is malformed, or names an input that `forward` does not have.
    """
    declared = getattr(module, "DOMAIN", {})
    if not isinstance(declared, dict):
        raise TaskError(f"task {task_id}: DOMAIN is no dict: write DOMAIN = {{'x': 'positive'}}")
    names = [*inspect.signature(module.Model.forward).parameters][1:]
    for name in declared:
        if name not in names:
            raise TaskError(f"task {task_id}: DOMAIN: forward has no input {name!r}{_nearest(name, names)}")
    made = draw()
    found = drawn_domains(draw)
    place = 0
    for number, value in enumerate(made):
        name = names[number] if number < len(names) else ""
        for tensor in tensors(value):
            if name in declared:
                found[place] = _read(declared[name], name, tensor, task_id)
            place += 1
    return found


def _read(said: Any, name: str, tensor: torch.Tensor, task_id: str) -> Domain:
    """A declared domain."""
    if isinstance(said, str) and said in _WORDS:
        domain = _WORDS[said]
    elif isinstance(said, list | tuple) and len(said) >= 2 and all(isinstance(one, int | float) for one in said):
        domain = Domain("numbers", said[0], said[1], tuple(said[2:]))
    else:
        near = _nearest(said, list(_WORDS)) if isinstance(said, str) else ""
        fix = f"use one of {', '.join(map(repr, _WORDS))}, or [low, high]"
        raise TaskError(f"task {task_id}: DOMAIN: {name}: unknown domain {said!r}{near}; {fix}")
    if domain.kind != "numbers" or tensor.is_floating_point():
        return domain
    known = torch.iinfo(tensor.dtype) if tensor.dtype is not torch.bool else None
    if known is None or not domain.bounded:
        raise TaskError(
            f"task {task_id}: DOMAIN: {name}: {said!r} is not for {tensor.dtype}; use [low, high] or 'as drawn'"
        )
    return attrs.evolve(domain, kind="integers")


def _nearest(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (there are {', '.join(names)})"

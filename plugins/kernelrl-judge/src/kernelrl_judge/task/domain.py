"""The domain of a task's inputs: declared by the task, or read from how its inputs are drawn.

A task declares it in its module: `DOMAIN = {"x": "positive", "labels": [0, 63, -100]}`. Keys are parameters of
`forward`.

The domain of an undeclared input is read from the calls of torch in `get_inputs`, if the input is one random draw that
is at most scaled, shifted, reshaped, sliced or cast, and if no other input uses the same draw. All other inputs, for
example tables, sorted keys, offsets, masks with a structure, softmax rows and symmetric matrices, keep the values that
`get_inputs` draws: a kernel may rely on the relation between their elements.
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

_COPIES = {"clone", "contiguous", "detach", "pin_memory", "requires_grad_"}
_CASTS = {"to", "type", "cpu", "cuda", "float", "double", "half", "bfloat16"}
_VIEWS = {"view", "reshape", "flatten", "unflatten", "ravel", "squeeze", "unsqueeze", "__get__", "__getitem__"}
_PERMUTATIONS = {"permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis"}
_KEEPS_ELEMENTS = _COPIES | _CASTS | _VIEWS | _PERMUTATIONS
"""Functions whose results have elements of their argument."""
_SUMS = {"add", "radd", "iadd", "sub", "rsub", "isub", "neg"}
_PRODUCTS = {"mul", "rmul", "imul", "div", "idiv", "true_divide", "truediv", "itruediv"}
_SCALES = _SUMS | _PRODUCTS
"""Functions that scale or shift a tensor, if their other operand is a number."""
_COMPARES = {"gt", "ge", "lt", "le", "greater", "less", "greater_equal", "less_equal"}
_DRAWS_UNBOUNDED = {"randn", "randn_like", "normal", "normal_"}
_DRAWS_UNIFORM = {"rand", "rand_like", "uniform_"}
_DRAWS_INTEGERS = {"randint", "randint_like", "random_"}
_DRAWS_TRUTH = {"bernoulli", "bernoulli_"}
_DRAWS = _DRAWS_UNBOUNDED | _DRAWS_UNIFORM | _DRAWS_INTEGERS | _DRAWS_TRUTH
_ATTRIBUTE = "_kernelrl_draw"
"""Attribute of a tensor that holds its origin."""


@attrs.frozen
class Domain:
    """The values that an input may have."""

    kind: str = "as drawn"
    """`numbers`, `uniform` (numbers whose range is not declared), `integers`, `truth`, or `as drawn` (an input with a
    structure, or of unknown origin)."""
    low: float = -math.inf
    """Smallest value."""
    high: float = math.inf
    """Largest value; included."""
    also: tuple[float, ...] = ()
    """Further values outside of this range."""
    special: bool = False
    """Whether NaN and infinities are values."""
    is_declared: bool = False
    """Whether the task declares it."""

    @property
    def bounded(self) -> bool:
        """Whether both bounds are finite."""
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


class _DrawTracker(TorchFunctionMode):
    """Tracks random draws through the calls of torch."""

    def __init__(self) -> None:
        super().__init__()
        self._count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        found = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        draw = self._draw_of_result(func, name, args, kwargs)
        if draw is not None:
            changed = tensors(found)
            if name == "__setitem__":
                changed += tensors(args[:1])
            for tensor in changed:
                setattr(tensor, _ATTRIBUTE, draw)
        return found

    def _draw_of_result(self, function: Callable[..., Any], name: str, args: Any, kwargs: Any) -> _Draw | None:
        """Origin of the results of a call; None if nothing in them is random."""
        if name in _DRAWS:
            self._count += 1
            return _Draw(frozenset({self._count}), _domain_of_draw(name, args, kwargs))
        operands = tensors([*args, *kwargs.values()])
        given = [draw for tensor in operands if (draw := _draw_of(tensor)) is not None]
        if not given:
            return None
        origins = frozenset().union(*(draw.origins for draw in given))
        return _Draw(origins, _derived(function, name, args, kwargs, given))


def _draw_of(tensor: torch.Tensor) -> _Draw | None:
    """Origin of a tensor; None if nothing in it is random."""
    return getattr(tensor, _ATTRIBUTE, None)


def _domain_of_draw(name: str, args: Any, kwargs: Any) -> Domain:
    """Domain of the values that a function of torch draws."""
    if name in _DRAWS_UNBOUNDED:
        return Domain("numbers")
    if name == "uniform_":
        low, high = [*args[1:3], *(kwargs[key] for key in ("from", "to") if key in kwargs)] or (0.0, 1.0)
        return Domain("numbers", float(low), float(high))
    if name in _DRAWS_UNIFORM:
        return Domain("numbers", 0.0, 1.0)
    if name in _DRAWS_INTEGERS:
        return _domain_of_integers(name, args, kwargs)
    return Domain("truth")


def _domain_of_integers(name: str, args: Any, kwargs: Any) -> Domain:
    """Domain of drawn integers. Positional limits are read only from calls of `randint`."""
    limits = [value for value in args[:2] if isinstance(value, int)] if name == "randint" else []
    low, high = kwargs.get("low", 0), None
    if len(limits) == 2:
        low, high = limits
    elif limits:
        low, high = 0, limits[0]
    high = kwargs.get("high", high)
    return Domain("integers", int(low), int(high) - 1) if isinstance(high, int) else AS_DRAWN


def _derived(function: Callable[..., Any], name: str, args: Any, kwargs: Any, given: list[_Draw]) -> Domain:
    """Domain of the result of a function of one draw.

    Args:
        given: origins of the operands.
    """
    before = given[0].domain
    if len(given) > 1 or before.kind == "as drawn":
        return AS_DRAWN
    if name in _KEEPS_ELEMENTS:
        return before
    # `__radd__` and `mul_` are `add` and `mul`, with operands in another order or in place.
    name = name.strip("_")
    numbers = [value for value in args if isinstance(value, int | float)]
    n_expected = 0 if name == "neg" else 1
    if before.kind != "numbers" or len(args) > 2 or kwargs or len(numbers) != n_expected:
        return AS_DRAWN
    if name in _COMPARES:
        return Domain("truth")
    if name not in _SCALES:
        return AS_DRAWN
    ends = torch.tensor([before.low, before.high], dtype=torch.float64, device="cpu")
    low, high = sorted(function(*(ends if isinstance(value, torch.Tensor) else value for value in args)).tolist())
    return AS_DRAWN if math.isnan(low) or math.isnan(high) else attrs.evolve(before, low=low, high=high)


def drawn_domains(draw: Callable[[], list[Any]]) -> list[Domain]:
    """Domain of each tensor that `draw` returns.

    Uniform numbers may be data, to which other signs and sizes apply, or for example probabilities. They are taken for
    data if their range does not begin above zero and no other input is a floating-point tensor.
    """
    with _DrawTracker():
        inputs = tensors(draw())
    draws = [_draw_of(tensor) for tensor in inputs]
    n_floating = sum(tensor.is_floating_point() for tensor in inputs)
    found: list[Domain] = []
    for number, (tensor, own) in enumerate(zip(inputs, draws, strict=True)):
        others = [other for position, other in enumerate(draws) if position != number and other is not None]
        if own is None or own.domain.kind != _kind(tensor) or any(own.origins & other.origins for other in others):
            found.append(AS_DRAWN)
        elif own.domain.kind == "numbers" and own.domain.bounded:
            is_data = n_floating == 1 and own.domain.low <= 0
            found.append(Domain("numbers") if is_data else attrs.evolve(own.domain, kind="uniform"))
        else:
            found.append(own.domain)
    return found


def _kind(tensor: torch.Tensor) -> str:
    """Kind of the values that a dtype holds; empty: values of the dtype stay as drawn."""
    if tensor.is_complex() or (tensor.is_floating_point() and tensor.element_size() == 1):
        return ""
    if tensor.dtype is torch.bool:
        return "truth"
    return "numbers" if tensor.is_floating_point() else "integers"


_TINY = 1e-30
"""Smallest value of the domain `positive`."""
_WORDS = {
    "any": Domain("numbers"),
    "as drawn": AS_DRAWN,
    "positive": Domain("numbers", low=_TINY),
    "non-negative": Domain("numbers", low=0.0),
    "probability": Domain("numbers", 0.0, 1.0),
    "special": Domain("numbers", special=True),
    "mask": Domain("truth"),
}
"""Domains that a task can declare by a word."""


def domains(module: Any, task_id: str, draw: Callable[[], list[Any]]) -> list[Domain]:
    """Domain of each input tensor, in the order of `get_inputs`.

    Args:
        draw: returns the inputs of one call.

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
    inputs = draw()
    found = drawn_domains(draw)
    position = 0
    for number, value in enumerate(inputs):
        name = names[number] if number < len(names) else ""
        for tensor in tensors(value):
            if name in declared:
                found[position] = _read(declared[name], name, tensor, task_id)
            position += 1
    return found


def _read(declared: Any, name: str, tensor: torch.Tensor, task_id: str) -> Domain:
    """The declared domain of an input tensor.

    Args:
        declared: a word or a list of numbers.
        name: name of the input.
    """
    if isinstance(declared, str) and declared in _WORDS:
        domain = _WORDS[declared]
    elif (
        isinstance(declared, list | tuple) and len(declared) >= 2 and all(isinstance(n, int | float) for n in declared)
    ):
        domain = Domain("numbers", declared[0], declared[1], tuple(declared[2:]))
    else:
        near = _nearest(declared, list(_WORDS)) if isinstance(declared, str) else ""
        fix = f"use one of {', '.join(map(repr, _WORDS))}, or [low, high]"
        raise TaskError(f"task {task_id}: DOMAIN: {name}: unknown domain {declared!r}{near}; {fix}")
    domain = attrs.evolve(domain, is_declared=True)
    if domain.kind != "numbers" or tensor.is_floating_point():
        return domain
    if tensor.dtype is torch.bool or tensor.is_complex() or not domain.bounded:
        raise TaskError(
            f"task {task_id}: DOMAIN: {name}: {declared!r} is not for {tensor.dtype}; use [low, high] or 'as drawn'"
        )
    return attrs.evolve(domain, kind="integers")


def _nearest(name: object, names: list[str]) -> str:
    near = difflib.get_close_matches(str(name), names, n=1)
    return f" (did you mean {near[0]!r}?)" if near else f" (there are {', '.join(names)})"

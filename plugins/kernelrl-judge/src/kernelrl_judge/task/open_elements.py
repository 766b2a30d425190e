"""Output elements that a reference leaves open, so that several values are right.

An index of `topk`, `sort` or `argsort` is open where values tie: PyTorch documents no order of equal values. An element
is open as well if the reference itself gives another value when its inputs or its quotients move by units in the last
place, such as a number that is rounded at exactly one half. Only elements that otherwise fail are treated as open.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import torch
from torch.overrides import TorchFunctionMode

from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.trees import decoded, laid_out_as, leaves, mapped, tensors
from kernelrl_judge.task.comparison import Tolerance, compare_values, root_mean_square
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError

__all__ = ["neighbours", "open_share", "with_open_elements"]

_AXIS_ARGUMENT = {"sort": 1, "argsort": 1, "topk": 2}
"""Functions that document no order of equal values, with the position of their axis argument. `max`, `min` and `argmax`
document the first index."""
_DIRECTIONS = (1.0, -1.0, *[None] * 22)
"""Signs of the moves by one unit in the last place; None: a random sign for each element. If an element is divided by a
maximum, for example, both must move in different directions."""

_QUOTIENTS = {"div", "divide", "true_divide", "__truediv__", "__rtruediv__"}
_QUOTIENT_ERROR = 2.0**-22
"""Relative error of a division on a GPU in single precision, as by `div.full.f32` of PTX."""


@attrs.frozen
class _Selection:
    """A call of a function that selects elements along an axis."""

    operand: torch.Tensor
    axis: int
    indices: torch.Tensor


class _Selections(TorchFunctionMode):
    """Collects the calls in which the order of equal values is open."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Selection] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", "")
        position = _AXIS_ARGUMENT.get(name)
        if position is None or not args or not isinstance(args[0], torch.Tensor) or kwargs.get("stable"):
            return result
        axis = args[position] if len(args) > position else kwargs.get("dim", -1)
        indices = result if isinstance(result, torch.Tensor) else result[1]
        if isinstance(axis, int) and args[0].dim():
            self.found.append(_Selection(args[0].detach().clone(), axis, indices.detach().clone()))
        return result


class _MovedQuotients(TorchFunctionMode):
    """Moves every quotient by the error of a division, each in the direction opposite to that of the one before.

    A maximum that is divided by its own scale is a whole number, from which a conversion to integers falls to the next.
    The scale is a quotient as well: moved alike, the two would cancel.
    """

    def __init__(self, direction: float) -> None:
        super().__init__()
        self._error = direction * _QUOTIENT_ERROR

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        is_quotient = getattr(func, "__name__", "") in _QUOTIENTS and isinstance(result, torch.Tensor)
        if not is_quotient or not result.is_floating_point():
            return result
        self._error = -self._error
        return result * (1.0 + self._error)


def with_open_elements(
    reference: Reference, inputs: list[Any], index: int, expected: Any, actual: Any, limit: Tolerance
) -> Any:
    """The expected outputs, with the candidate's value in place of each open element that it gives right.

    Args:
        index: index of the random state of the call.
        expected: outputs of the reference for the inputs; those in double precision may be in their place.
        limit: tolerance for floating-point elements.
    """
    try:
        chosen = _with_equal_choices(_selections(reference, inputs, index), expected, actual)
        wrong = compare_values(chosen, actual, limit)
        if wrong is None or wrong.wrong_share is None or wrong.wrong_share > LIMITS.open_share:
            return chosen
        # In double precision, values beside a tie are not rounded to it. Inputs of half precision move by a unit of
        # single precision there, in which a kernel may compute.
        chosen = _opened(chosen, actual, _moved_outputs(reference, inputs, index, in_double=True), limit)
        if compare_values(chosen, actual, limit) is None:
            return chosen
        return _opened(chosen, actual, _moved_outputs(reference, inputs, index), limit)
    except (TaskError, torch.OutOfMemoryError):
        return expected


def _opened(chosen: Any, actual: Any, moved: list[list[Any]], limit: Tolerance) -> Any:
    """The chosen outputs, with the candidate's value where it is within those of the reference for moved inputs."""
    opened = []
    for number, (_, want, got) in enumerate(leaves(chosen, actual)):
        if isinstance(want, torch.Tensor):
            others = [output[number] for output in moved]
            is_compared = want.numel() and not want.is_complex()
            opened.append(_within_moved(want, got.to(want.device), others, limit) if is_compared else want)
    return _with_tensors(chosen, opened)


def open_share(reference: Reference, inputs: list[Any], index: int, limit: Tolerance) -> float:
    """Largest share of open elements among the output tensors of a call, except indices of equal values.

    Only outputs count that the reference itself gives otherwise in double precision, beyond the largest tolerance that
    an evaluation allows. Others leave nothing open: an index of the largest input, for example, depends on no rounding.

    Args:
        index: index of the random state of the call.
        limit: declared tolerance for floating-point elements.

    Raises:
        TaskError: the reference fails for moved inputs.
    """
    expected = reference.expected(inputs, index)
    limit = _loosest(limit, {reference.dtype, *(want.dtype for want in tensors(expected))})
    exact = reference.exact(inputs, index)
    if exact is not None and _have_same_shapes(expected, exact):
        chosen = _with_equal_choices(_selections(reference, inputs, index), expected, exact)
        if compare_values(exact, chosen, limit) is None:
            return 0.0
    moved = _moved_outputs(reference, inputs, index)
    largest_share = 0.0
    for number, (_, want) in enumerate(leaves(expected)):
        others = [output[number] for output in moved]
        if isinstance(want, torch.Tensor) and want.numel() and not want.is_complex() and _are_alike(want, others):
            found = _Opened.of(want, others, _allowed(want, limit))
            largest_share = max(largest_share, found.share)
    return largest_share


def _loosest(limit: Tolerance, dtypes: set[torch.dtype]) -> Tolerance:
    """The largest tolerance that an evaluation allows, for the coarsest of some dtypes.

    An output in single precision that is computed from half precision has the errors of half precision.
    """
    atol = max(map(limit.atol_of, dtypes))
    rtol = max(map(limit.rtol_of, dtypes))
    return attrs.evolve(limit, atol=atol, rtol=rtol, factor=LIMITS.loosest)


def _allowed(want: torch.Tensor, limit: Tolerance) -> torch.Tensor | float:
    """Largest error of each element; 0 for integers."""
    if not want.is_floating_point():
        return 0.0
    values = decoded(want)
    scale = min(1.0, root_mean_square(values)) if limit.strict else 1.0
    return limit.atol_of(want.dtype) * scale + limit.rtol_of(want.dtype) * values.double().abs()


def _with_equal_choices(found: list[_Selection], expected: Any, actual: Any) -> Any:
    """The expected outputs, with the candidate's indices where they select values equal to those of the reference."""
    chosen = []
    for _, want, got in leaves(expected, actual):
        if isinstance(want, torch.Tensor):
            chosen.append(_chosen(want, got.to(want.device), found))
    return _with_tensors(expected, chosen)


def _chosen(want: torch.Tensor, got: torch.Tensor, selections: list[_Selection]) -> torch.Tensor:
    if want.is_floating_point() or want.is_complex() or want.dtype is torch.bool:
        return want
    for selection in selections:
        if selection.indices.shape == want.shape and torch.equal(selection.indices, want):
            return torch.where(_selects_equal(selection, got), got, want)
    return want


def _with_tensors(value: Any, others: list[torch.Tensor]) -> Any:
    """The value with other tensors, in the order of its leaves."""
    remaining = iter(others)
    return mapped(value, lambda _: next(remaining))


def _selects_equal(selection: _Selection, got: torch.Tensor) -> torch.Tensor:
    """Whether each index selects a value equal to that of the reference, in bounds and once along the axis."""
    size = selection.operand.shape[selection.axis]
    is_inside = (got >= 0) & (got < size)
    indices = torch.where(is_inside, got, 0)
    values = torch.gather(selection.operand, selection.axis, indices)
    expected = torch.gather(selection.operand, selection.axis, selection.indices)
    is_equal = (values == expected) | (values.isnan() & expected.isnan())
    ordered, _ = torch.sort(got, dim=selection.axis)
    is_repeated = (ordered.diff(dim=selection.axis) == 0).any(dim=selection.axis, keepdim=True)
    return is_inside & is_equal & ~is_repeated


@attrs.frozen
class _Opened:
    """The open elements of an output tensor, and the range of the values of each element for moved inputs."""

    is_open: torch.Tensor
    low: torch.Tensor
    high: torch.Tensor
    margin: torch.Tensor | float
    """Tolerance of each element."""

    @classmethod
    def of(cls, want: torch.Tensor, others: list[torch.Tensor], margin: torch.Tensor | float) -> _Opened:
        """
        Args:
            others: values of the reference for moved inputs.
        """
        low, high = want.double(), want.double()
        for other in others:
            low = torch.minimum(low, other.double())
            high = torch.maximum(high, other.double())
        # Rounding moves every element a little; only jumps beyond the tolerance are open.
        return cls((high - low) > margin, low, high, margin)

    @property
    def share(self) -> float:
        return float(self.is_open.double().mean())


def _have_same_shapes(first: Any, second: Any) -> bool:
    return [tensor.shape for tensor in tensors(first)] == [tensor.shape for tensor in tensors(second)]


def _are_alike(want: torch.Tensor, others: list[Any]) -> bool:
    return all(isinstance(other, torch.Tensor) and other.shape == want.shape for other in others)


def _within_moved(want: torch.Tensor, got: torch.Tensor, others: list[Any], limit: Tolerance) -> torch.Tensor:
    """The expected tensor with the elements that are within the values of the reference for moved inputs."""
    if not _are_alike(want, others):
        return want
    margin = limit.rtol_of(got.dtype) * want.double().abs() if want.is_floating_point() else 0.0
    found = _Opened.of(want, others, margin)
    if found.share > LIMITS.open_share:
        return want
    value = got.double()
    is_right = found.is_open & (value >= found.low - found.margin) & (value <= found.high + found.margin)
    return torch.where(is_right, got.to(want.dtype), want)


def _selections(reference: Reference, inputs: list[Any], index: int) -> list[_Selection]:
    """Calls of the reference that select elements without a documented order of equal values."""
    calls = _Selections()
    with calls:
        reference.expected(inputs, index)
    return calls.found


def _moved_outputs(reference: Reference, inputs: list[Any], index: int, *, in_double: bool = False) -> list[list[Any]]:
    """Leaves of the outputs for inputs that are moved by one unit in the last place, and for quotients that are moved.

    Args:
        in_double: move inputs by a unit of single precision, and compute in double precision; no outputs where the
            reference does not support that.
    """
    call = reference.exact if in_double else reference.expected
    given = [mapped(value, _in_single) for value in inputs] if in_double else inputs
    # The reference seeds torch's own generators before each call.
    generator = torch.Generator(reference.device).manual_seed(index)
    outputs = []
    for values, mode in _moves(given, generator):
        with mode:
            output = call(values, index)
        if output is None:
            return []
        outputs.append([leaf for _, leaf in leaves(output)])
    return outputs


def _moves(inputs: list[Any], generator: torch.Generator) -> Iterator[tuple[list[Any], AbstractContextManager[Any]]]:
    """Inputs, and the mode in which the reference is called with them."""
    for direction in _DIRECTIONS:
        yield [_moved_value(value, direction, generator) for value in inputs], nullcontext()
    for sign in (1.0, -1.0):
        yield inputs, _MovedQuotients(sign)


def neighbours(inputs: list[Any], index: int, device: str) -> list[Any]:
    """Inputs in which every floating-point value is moved to a neighbour, in a random direction."""
    generator = torch.Generator(device).manual_seed(index)
    return [_moved_value(value, None, generator) for value in inputs]


def _in_single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() == 2 else tensor


def _moved_value(value: Any, direction: float | None, generator: torch.Generator) -> Any:
    """The value with moved tensors."""
    return mapped(value, lambda tensor: _moved(tensor, direction, generator))


def _moved(tensor: torch.Tensor, direction: float | None, generator: torch.Generator) -> torch.Tensor:
    """Floating-point values moved to their neighbours; other values as they are."""
    if not tensor.is_floating_point() or tensor.element_size() < 2 or not tensor.numel():
        return tensor
    if direction is None:
        draws = torch.rand(tensor.shape, device=tensor.device, generator=generator)
        target = torch.where(draws < 0.5, torch.inf, -torch.inf).to(tensor.dtype)
    else:
        target = torch.full_like(tensor, direction * torch.inf)
    if tensor.element_size() == 2:
        return laid_out_as(_neighbour_of_half(tensor, target), tensor)
    return laid_out_as(torch.nextafter(tensor, target), tensor)


def _neighbour_of_half(tensor: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The neighbouring value of the same dtype: two bytes hold sign and magnitude."""
    bits = tensor.contiguous().view(torch.int16)
    is_away_from_zero = (target > 0) == (tensor > 0)
    step = torch.where(is_away_from_zero, 1, -1).to(torch.int16)
    is_movable = torch.isfinite(tensor) & (tensor != 0)
    return torch.where(is_movable, bits + step, bits).view(tensor.dtype)

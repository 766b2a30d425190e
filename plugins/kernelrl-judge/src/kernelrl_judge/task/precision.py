"""Comparison that allows for the error of PyTorch, and detects errors that factors of ten bits (TF32) explain.

A kernel whose error exceeds the tolerance is compared with the reference in double precision. Its error may then be a
multiple of the error that PyTorch itself makes on this device with its default settings, within a multiple of the
tolerance (`kernelrl_judge.task.comparison`). Long scans, sums and products are thus compared with the precision that
PyTorch achieves.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Cause, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.device_memory import DeviceMemoryError
from kernelrl_judge.protocol.trees import leaves, mapped, reals, tensors
from kernelrl_judge.task.comparison import (
    Tolerance,
    as_rows,
    compare_values,
    element_scales,
    root_mean_square,
)
from kernelrl_judge.task.input_indices import LEARNED
from kernelrl_judge.task.located import located
from kernelrl_judge.task.open_elements import with_open_elements
from kernelrl_judge.task.operation_counter import OperationCounter
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.source import TaskError
from kernelrl_judge.task.torch_settings import settings_of_task

__all__ = ["ROUNDING", "error_shares", "largest_error", "rounding_unit", "wrong_values"]

ROUNDING = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Relative error of rounding, by dtype."""
_TEN_BITS = (
    'the error is that of factors rounded to 10 bits, as in TF32 or fp16: use input_precision="ieee" in tl.dot, and '
    "leave torch.backends.cuda.matmul.allow_tf32 off."
)
_DRAWS = 8
"""Number of inputs over which the usual scale of an output is measured."""
_ERROR_DRAWS = 4
"""Number of inputs over which the error of PyTorch is measured, beside those of the call."""


def largest_error(exact: torch.Tensor, own: torch.Tensor) -> float:
    """Largest error of an output of the reference beyond that of rounding to its dtype.

    Args:
        exact: the output in double precision.
        own: the output in the dtype of the reference.
    """
    if not exact.is_floating_point() or not exact.numel():
        return 0.0
    error = (own.double() - exact).abs() - ROUNDING.get(own.dtype, 0.0) * exact.abs()
    return max(0.0, float(error.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).max()))


def error_shares(exact: Any, own: Any, limit: Tolerance, *, share: float = 0.0) -> dict[str, float]:
    """Error of the outputs of a reference by the path of the output, as a share of the scale of each element.

    The error of rounding an output to its dtype does not count.

    Args:
        exact: the outputs in double precision.
        own: the outputs in the dtype of the reference.
        limit: defines the scales.
        share: share of the elements that may have a larger error.
    """
    found = {}
    for path, one, other in leaves(reals(exact), reals(own)):
        if isinstance(one, torch.Tensor) and one.is_floating_point() and one.numel():
            rows, own_rows = as_rows(one), as_rows(other)
            errors = (own_rows.double() - rows).abs() - ROUNDING.get(other.dtype, 0.0) * rows.abs()
            errors = (errors / element_scales(rows, limit, path)).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            n_larger = int(share * errors.numel())
            largest = errors.flatten().topk(n_larger + 1).values[-1] if n_larger else errors.max()
            found[path] = max(0.0, float(largest))
    return found


def wrong_values(
    reference: Reference, inputs: list[Any], index: int, expected: Any, actual: Any, limit: Tolerance
) -> Mismatch | None:
    """Mismatch of outputs beyond the tolerance and the reference's own error; None if there is none.

    Args:
        index: index of the random state of the call.
        expected: the outputs of the reference.

    Raises:
        DeviceMemoryError: other evaluations may have taken the memory for a comparison in double precision.
    """
    wrong = compare_values(expected, actual, limit)
    if wrong is None:
        return None
    # Outputs of calls that change the state depend on the calls before them.
    if wrong.kind != "values" or not limit.strict or reference.changed_state:
        return located(wrong, expected, actual, limit, inputs)
    exact = None
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        exact = reference.exact(inputs, index)
    if exact is None:
        if _others_decide(reference, expected, actual, limit):
            raise DeviceMemoryError("CUDA out of memory: the reference in double precision")
        opened = with_open_elements(reference, inputs, index, expected, actual, limit)
        wrong = compare_values(opened, actual, limit)
        return None if wrong is None else located(wrong, opened, actual, limit, inputs)
    allowed = attrs.evolve(limit, scales=_usual_scales(reference))
    own_errors = _own_errors(reference, exact, expected, allowed)
    allowed = attrs.evolve(allowed, own_errors=own_errors, rounding=rounding_unit(reference, expected))
    if compare_values(exact, actual, allowed) is None:
        return None
    # Indices and other integers of double precision belong to other ties.
    mixed = _exact_floats(exact, expected)
    opened = with_open_elements(reference, inputs, index, mixed, actual, allowed)
    wrong = compare_values(opened, actual, allowed)
    if wrong is None:
        return None
    found = located(wrong, opened, actual, allowed, inputs)
    if reference.dtype is not torch.float32:
        return found
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        for narrowed in _outputs_of_ten_bits(reference, inputs, index):
            if _may_convolve_in_ten_bits(reference, inputs, index):
                by_narrowed = error_shares(exact, narrowed, allowed, share=LIMITS.own_error_share)
                by_default = attrs.evolve(allowed, own_errors=_largest(own_errors, by_narrowed))
                if compare_values(opened, actual, by_default) is None:
                    return None
            if _distance(narrowed, actual) < LIMITS.explained_by_ten_bits * _distance(exact, actual):
                return found.with_cause(Cause.FACTORS, _TEN_BITS)
    return found


def _others_decide(reference: Reference, expected: Any, actual: Any, limit: Tolerance) -> bool:
    """Whether other evaluations took the memory for double precision, in which the outputs might be right."""
    lacks_memory = reference.facts.no_double is None
    if not lacks_memory or not reference.facts.shares_memory:
        return False
    farthest = attrs.evolve(limit, factor=2 * LIMITS.loosest * limit.factor)
    return compare_values(expected, actual, farthest) is None


def _exact_floats(exact: Any, expected: Any) -> Any:
    """Floating-point outputs in double precision, and all other outputs as the reference gives them."""
    pairs = [(one, want) for _, one, want in leaves(exact, expected) if isinstance(want, torch.Tensor)]
    tensors = iter([one if want.is_floating_point() else want for one, want in pairs])
    return mapped(expected, lambda _: next(tensors))


def _own_errors(reference: Reference, exact: Any, expected: Any, limit: Tolerance) -> Mapping[str, float]:
    """Error of PyTorch by the path of the output: the largest of that for this call and those for other inputs, and at
    least the unit of rounding of a task of half precision, in which a kernel may keep intermediate values."""
    known = reference.facts.own_errors
    if known is None:
        known = {}
        with contextlib.suppress(TaskError, torch.OutOfMemoryError):
            for index in range(LEARNED - _ERROR_DRAWS, LEARNED):
                inputs = reference.inputs(index)
                drawn_exact = reference.exact(inputs, index)
                if drawn_exact is not None:
                    drawn = error_shares(
                        drawn_exact, reference.expected(inputs, index), limit, share=LIMITS.own_error_share
                    )
                    known = _largest(known, drawn)
        reference.facts.own_errors = known
    measured = _largest(known, error_shares(exact, expected, limit, share=LIMITS.own_error_share))
    least = rounding_unit(reference, expected)
    return {path: max(share, least) for path, share in measured.items()}


def rounding_unit(reference: Reference, outputs: Any) -> float:
    """Unit of rounding of the coarsest half-precision dtype among the inputs, parameters and outputs; 0 without one.

    Values of float8 kinds count as bfloat16: devices add their products with about as few bits.
    """
    if reference.facts.rounding_unit is None:
        values = [*tensors(reference.inputs(LEARNED)), *reference.state.values(), *tensors(outputs)]
        narrow = [tensor.dtype for tensor in values if tensor.is_floating_point() and tensor.element_size() < 4]
        units = [ROUNDING.get(dtype, ROUNDING[torch.bfloat16]) for dtype in narrow]
        reference.facts.rounding_unit = max(units, default=0.0)
    return reference.facts.rounding_unit


def _largest(first: Mapping[str, float], second: Mapping[str, float]) -> dict[str, float]:
    return {path: max(first.get(path, 0.0), second.get(path, 0.0)) for path in {*first, *second}}


def _usual_scales(reference: Reference) -> Mapping[str, float]:
    """Root mean square of each output over several inputs, by its path. For one input, a sum may happen to cancel."""
    known = reference.facts.usual_scales
    if known is not None:
        return known
    squares: dict[str, float] = {}
    with contextlib.suppress(TaskError, torch.OutOfMemoryError):
        for index in range(LEARNED - _DRAWS, LEARNED):
            outputs = reals(reference.expected(reference.inputs(index), index))
            for path, output in leaves(outputs):
                if isinstance(output, torch.Tensor) and output.is_floating_point():
                    squares[path] = squares.get(path, 0.0) + root_mean_square(output) ** 2 / _DRAWS
    scales = {path: square**0.5 for path, square in squares.items()}
    reference.facts.usual_scales = scales
    return scales


def _outputs_of_ten_bits(reference: Reference, inputs: list[Any], index: int) -> Iterator[Any]:
    """Outputs of the reference, in double precision, for inputs and parameters that are rounded to ten bits."""
    for narrow in (_nearest, _truncated):
        state = {name: narrow(tensor) for name, tensor in reference.state.items()}
        narrowed = [mapped(value, narrow) for value in inputs]
        found = reference.with_state(state).exact(narrowed, index)
        if found is not None:
            yield found


def _may_convolve_in_ten_bits(reference: Reference, inputs: list[Any], index: int) -> bool:
    """Whether the reference has convolutions for which cuDNN may choose TF32: PyTorch allows it by default. Its choice
    depends on the free memory, so a call of the reference need not show the error."""
    known = reference.facts.has_narrow_convolutions
    if known is None:
        known = reference.device == "cuda" and _is_tf32_allowed(reference)
        if known:
            with OperationCounter() as counter:
                reference.expected(inputs, index)
            known = counter.has_convolutions
        reference.facts.has_narrow_convolutions = known
    return known


def _is_tf32_allowed(reference: Reference) -> bool:
    """Whether the settings of a task let cuDNN convolve in TF32."""
    with settings_of_task(reference.task_id):
        convolutions = getattr(torch.backends.cudnn, "conv", None)
        # From version 2.9 on, torch refuses the older setting after the newer one.
        return torch.backends.cudnn.allow_tf32 if convolutions is None else convolutions.fp32_precision == "tf32"


def _nearest(tensor: torch.Tensor) -> torch.Tensor:
    """Values rounded to the nearest ones of ten bits."""
    return _with_bits(tensor, lambda bits: (bits + 0x1000) & ~0x1FFF)


def _truncated(tensor: torch.Tensor) -> torch.Tensor:
    """Values cut off after ten bits."""
    return _with_bits(tensor, lambda bits: bits & ~0x1FFF)


def _with_bits(tensor: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    if tensor.dtype is not torch.float32:
        return tensor
    return change(tensor.contiguous().view(torch.int32)).view(torch.float32)


def _distance(exact: Any, actual: Any) -> float:
    """Root of the sum of the squared differences of all numbers."""
    squares = [
        float((other.double().to(one.device) - one).square().sum())
        for _, one, other in leaves(reals(exact), reals(actual))
        if isinstance(one, torch.Tensor) and one.is_floating_point()
    ]
    return math.sqrt(sum(squares))

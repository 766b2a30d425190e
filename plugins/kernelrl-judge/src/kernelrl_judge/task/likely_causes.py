"""Likely causes of wrong values, read from the values themselves.

Every test needs a part of the wrong elements alone, so that its cost is bounded.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import Cause, MismatchCause
from kernelrl_judge.protocol.trees import decoded, tensors
from kernelrl_judge.task.wrong_region import WrongRegion, spread_places, wrong_region

__all__ = ["likely_causes"]

_MAX_SAMPLE = 4096
_LEAST = 6
"""Smallest number of elements that show a relation."""
_AGREEING = 0.97
"""Share of the sample for which a relation must hold."""
_CLOSE = 2e-3
"""Relative difference within which two numbers are equal."""
_REST = 0.2
"""Largest difference that a factor leaves, as a share of the difference that it explains."""
_HUGE = 1e30
"""Size of numbers that are computed from poisoned memory."""
_FEW = 4
"""Largest number of places at an end that a wrong bound leaves."""
_LEAST_BLOCK = 16
_LINES = 16
"""Number of rows or columns in which a relation is looked for."""
_RARE = 0.01
_FRESH_BYTES = (0xFE, 0x7B)
"""Bytes with which host memory is filled before calls, and the second one of device memory."""
_OTHER_PROGRAM = 0xFE
"""Lowest byte of a value that another program of Triton's interpreter has stored; the others are 0xFF."""


@attrs.frozen
class _Sample:
    """Wrong elements of an output, spread evenly over them."""

    places: torch.Tensor
    """[n] places in memory order."""
    expected: torch.Tensor
    """[n] in double precision."""
    actual: torch.Tensor
    """[n] in double precision."""
    bytes: torch.Tensor
    """[n, itemsize] bytes of the candidate's elements."""


def likely_causes(
    expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor, region: WrongRegion, inputs: Sequence[Any]
) -> tuple[MismatchCause, ...]:
    """The causes that the wrong elements show, the best evidence first.

    Args:
        expected, actual: one output.
        wrong: which of its elements are wrong.
        region: of the wrong elements.
        inputs: of the call.
    """
    if expected.dtype is torch.bool or expected.is_complex():
        return _boundaries(region)
    sample = _sample(expected, actual, wrong)
    filled = _filled(sample, actual)
    if filled is not None:
        part = _unwritten_region(actual, wrong) if filled.kind is Cause.UNWRITTEN else None
        if part is None:
            return (filled, *_boundaries(region))
        # The others may be wrong because of the part that is missing.
        finite = torch.isfinite(sample.actual) & (sample.actual.abs() < _HUGE)
        relation = _relation(_part(sample, finite), expected, actual, wrong, inputs) if bool(finite.any()) else None
        filled = attrs.evolve(filled, evidence=f"{filled.evidence.removesuffix('.')}: {part.text}.")
        return (filled, *([] if relation is None else [relation]), *_boundaries(part))
    finite = torch.isfinite(sample.expected) & torch.isfinite(sample.actual)
    if not bool(finite.any()):
        return (*_undefined(sample), *_ranges(expected, wrong, inputs), *_boundaries(region))
    relation = _relation(_part(sample, finite), expected, actual, wrong, inputs)
    found = [] if relation is None else [relation]
    if bool((~finite).any()):
        found = [*_undefined(sample), *found]
    return (*_rounded(expected, actual), *found, *_ranges(expected, wrong, inputs), *_boundaries(region))


def _sample(expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor) -> _Sample:
    places = spread_places(wrong, _MAX_SAMPLE)
    got = actual.reshape(-1)[places.to(actual.device)]
    want = expected.reshape(-1)[places.to(expected.device)]
    raw = got.contiguous().view(torch.uint8).reshape(len(places), -1)
    return _Sample(places, decoded(want).double().cpu(), decoded(got).double().cpu(), raw.cpu())


def _part(sample: _Sample, chosen: torch.Tensor) -> _Sample:
    return _Sample(sample.places[chosen], sample.expected[chosen], sample.actual[chosen], sample.bytes[chosen])


# --- memory that nothing wrote ------------------------------------------------------------------------------------


def _filled(sample: _Sample, actual: torch.Tensor) -> MismatchCause | None:
    """Values that memory has before a kernel writes it, or that a launch gives for loads that nothing defines."""
    width = sample.bytes.shape[1]
    if width < 2:
        return None
    is_float = actual.is_floating_point()
    on_gpu = actual.device.type == "cuda"
    for byte in _FRESH_BYTES:
        share = _share((sample.bytes == byte).all(1))
        if share:
            return _unwritten(share)
    ones = (sample.bytes == 0xFF).all(1)
    if is_float and bool(ones.any()):
        return _unwritten(_share(ones)) if on_gpu else _out_of_bounds(_share(ones))
    if is_float and width >= 4 and not on_gpu:
        others = (sample.bytes[:, 0] == _OTHER_PROGRAM) & (sample.bytes[:, 1:] == 0xFF).all(1)
        if bool(others.any()):
            evidence = f"{_percent(_share(others))} of the wrong elements use values that another program stores."
            return MismatchCause(Cause.RACE, evidence)
        new = _new_memory(sample, actual.dtype)
        if bool(new.any()):
            return _unwritten(_share(new))
    if is_float and width >= 4:
        huge = (sample.actual.abs() > _HUGE) & (sample.expected.abs() < _HUGE) & torch.isfinite(sample.actual)
        if _share(huge) > _RARE:
            evidence = f"{_percent(_share(huge))} of the wrong elements are computed from memory that nothing wrote."
            return MismatchCause(Cause.UNWRITTEN, evidence)
    return None


def _new_memory(sample: _Sample, dtype: torch.dtype) -> torch.Tensor:
    """Which elements are the NaN with which torch fills new memory for Triton's interpreter."""
    # Processors of other architectures compute the same NaN.
    if platform.machine() != "x86_64":
        return torch.zeros(len(sample.bytes), dtype=torch.bool)
    nan = torch.tensor([float("nan")], dtype=dtype).view(torch.uint8)
    return (sample.bytes == nan).all(1)


def _unwritten_region(actual: torch.Tensor, wrong: torch.Tensor) -> WrongRegion | None:
    """The region of the elements that nothing wrote; None if these are all wrong ones, or the dtype is a rare one."""
    if actual.dtype not in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        return None
    unwritten = wrong & ~(actual.abs() < _HUGE).to(wrong.device)
    count = int(unwritten.sum())
    return wrong_region(unwritten) if 0 < count < int(wrong.sum()) else None


def _unwritten(share: float) -> MismatchCause:
    evidence = (
        f"{_percent(share)} of the wrong elements hold the content of memory before the call: nothing wrote them."
    )
    return MismatchCause(Cause.UNWRITTEN, evidence)


def _out_of_bounds(share: float) -> MismatchCause:
    evidence = f"{_percent(share)} of the wrong elements use loads outside of the tensors of the launch."
    return MismatchCause(Cause.OUT_OF_BOUNDS, evidence)


def _undefined(sample: _Sample) -> Iterator[MismatchCause]:
    bad = ~torch.isfinite(sample.actual) & torch.isfinite(sample.expected)
    if not bool(bad.any()):
        return
    if bool(torch.isinf(sample.actual[bad]).any()):
        text = "are infinite or NaN: an overflow, or a division by zero."
    else:
        text = "are NaN: 0 / 0, inf - inf, or the root or logarithm of a negative number."
    yield MismatchCause(Cause.UNDEFINED, f"{_percent(_share(bad))} of the wrong elements {text}")


# --- relations to the expected values -----------------------------------------------------------------------------


def _relation(
    sample: _Sample, expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor, inputs: Sequence[Any]
) -> MismatchCause | None:
    """The first relation of the wrong values to other values that holds."""
    if len(sample.places) < _LEAST:
        return None
    want, got = sample.expected, sample.actual
    if _most(got == 0):
        return MismatchCause(Cause.ZERO, "all wrong elements are 0.")
    if _most(_near(got, got[:1])) and not _most(_near(want, want[:1])):
        return MismatchCause(Cause.CONSTANT, f"all wrong elements are {got[0]:.6g}.")
    copied = _copied(sample, expected, inputs)
    if copied is not None:
        return copied
    moved = _moved(sample, expected)
    if moved is not None:
        return moved
    return _scaled(sample, expected, actual, wrong)


def _copied(sample: _Sample, expected: torch.Tensor, inputs: Sequence[Any]) -> MismatchCause | None:
    for number, tensor in enumerate(tensors([*inputs])):
        if tensor.shape == expected.shape and not tensor.is_complex():
            given = decoded(tensor).reshape(-1)[sample.places.to(tensor.device)].double().cpu()
            if _most(_near(sample.actual, given)):
                return MismatchCause(Cause.COPY, f"the wrong elements equal those of input tensor {number}.")
    return None


def _moved(sample: _Sample, expected: torch.Tensor) -> MismatchCause | None:
    """Elements of other places."""
    shape, n_axes = expected.shape, expected.dim()
    indices = torch.unravel_index(sample.places, shape)

    def are_those_of(others: Sequence[torch.Tensor]) -> bool:
        values = decoded(expected[tuple(index.to(expected.device) for index in others)])
        return _most(_near(sample.actual, values.double().cpu()))

    if n_axes >= 2:
        *leading, row, column = indices
        n_rows, n_columns = shape[-2:]
        if n_rows == n_columns and are_those_of([*leading, column, row]):
            return MismatchCause(Cause.TRANSPOSED, "the last two axes are exchanged.")
        if n_rows != n_columns:
            *leading, column, row = torch.unravel_index(sample.places, (*shape[:-2], n_columns, n_rows))
            if are_those_of([*leading, row, column]):
                return MismatchCause(Cause.TRANSPOSED, "the output is stored with the last two axes exchanged.")
    for axis, size in enumerate(shape):
        if size < _LEAST:
            continue
        before, index, after = indices[:axis], indices[axis], indices[axis + 1 :]
        for step in (1, -1):
            if are_those_of([*before, (index + step) % size, *after]):
                named = "element" if n_axes == 1 else f"index along axis {axis}"
                which = "next" if step == 1 else "previous"
                return MismatchCause(Cause.SHIFTED, f"the wrong elements are those of the {which} {named}.")
        if are_those_of([*before, size - 1 - index, *after]):
            return MismatchCause(Cause.SHIFTED, f"axis {axis} is reversed.")
    return None


def _scaled(sample: _Sample, expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor) -> MismatchCause | None:
    """A factor or an offset, of all elements or of each row or column."""
    whole = _constant(sample.expected, sample.actual)
    if whole is not None:
        name, value = whole
        if name == "factor":
            return MismatchCause(Cause.FACTOR, f"the wrong elements are the expected ones times {value:.6g}.")
        return MismatchCause(Cause.OFFSET, f"the wrong elements are the expected ones plus {value:.6g}.")
    if expected.dim() < 2 or not expected.numel():
        return None
    want, got, is_wrong = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (expected, actual, wrong))
    for one, turned in (("row", False), ("column", True)):
        lines = [tensor.T if turned else tensor for tensor in (want, got, is_wrong)]
        found = _constant_by_line(*lines)
        if found is None:
            continue
        name, low, high = found
        kind, words = (Cause.FACTOR, "times a factor") if name == "factor" else (Cause.OFFSET, "plus a number")
        evidence = f"the wrong elements are the expected ones {words} of the {one}: {low:.4g} to {high:.4g}."
        return MismatchCause(kind, evidence)
    return None


def _constant_by_line(want: torch.Tensor, got: torch.Tensor, wrong: torch.Tensor) -> tuple[str, float, float] | None:
    """A factor or an offset that is constant in each line; its smallest and largest value.

    Args:
        want, got, wrong: [lines, elements]
    """
    numbers = (wrong.sum(1) >= _LEAST).nonzero().flatten()
    if len(numbers) < 2:
        return None
    chosen = numbers[torch.linspace(0, len(numbers) - 1, min(_LINES, len(numbers)), device=numbers.device).long()]
    found = []
    for line in chosen.tolist():
        places = wrong[line].nonzero().flatten()[:_MAX_SAMPLE]
        wanted = decoded(want[line][places]).double().cpu()
        given = decoded(got[line][places.to(got.device)]).double().cpu()
        found.append(_constant(wanted, given))
    for name in ("factor", "offset"):
        values = [one[1] for one in found if one is not None and one[0] == name]
        if len(values) >= _AGREEING * len(chosen):
            return name, min(values), max(values)
    return None


def _constant(want: torch.Tensor, got: torch.Tensor) -> tuple[str, float] | None:
    """A factor or an offset between two lists of numbers."""
    large = want.abs() > 1e-3 * want.abs().max()
    if int(large.sum()) >= _LEAST and float(want[large].std()) > _CLOSE * float(want[large].abs().mean()):
        factor = float((got[large] / want[large]).median())
        # The rest must be far smaller than what the factor changes.
        allowed = min(_CLOSE, _REST * abs(factor - 1.0)) * want.abs()
        if _most((got - factor * want).abs() <= allowed):
            return "factor", factor
        differences = got - want
        offset = float(differences.median())
        if _most((differences - offset).abs() <= _CLOSE * abs(offset)):
            return "offset", offset
    return None


# --- which elements -----------------------------------------------------------------------------------------------


def _ranges(expected: torch.Tensor, wrong: torch.Tensor, inputs: Sequence[Any]) -> Iterator[MismatchCause]:
    """A range of expected values, or of values of an input, in which elements are wrong, and outside of which they are
    right."""
    candidates = [("the expected value", expected)]
    candidates += [
        (f"input tensor {number}", tensor)
        for number, tensor in enumerate(tensors([*inputs]))
        if tensor.shape == expected.shape and tensor.is_floating_point()
    ]
    if wrong.numel() < 4 * _LEAST:
        return
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(wrong.numel(), (16 * _MAX_SAMPLE,), generator=generator)
    is_wrong = wrong.reshape(-1)[places.to(wrong.device)].cpu()
    for name, tensor in candidates:
        values = decoded(tensor).reshape(-1)[places.to(tensor.device)].double().cpu()
        bad, good = values[is_wrong], values[~is_wrong]
        if min(len(bad), len(good)) < 4 * _LEAST:
            return
        limit = _limit(bad, good)
        if limit:
            yield MismatchCause(Cause.RANGE, f"only elements are wrong where {name} is {limit}.")
            return


def _limit(bad: torch.Tensor, good: torch.Tensor) -> str:
    """What separates two lists of numbers; empty if nothing does."""
    if _share(bad < 0) > 1 - _RARE and _share(good < 0) < _RARE:
        return "negative"
    if _share(bad > 0) > 1 - _RARE and _share(good > 0) < _RARE:
        return "positive"
    if float(bad.min()) >= float(good.max()):
        return f"above {float(good.max()):.4g}"
    if float(bad.max()) <= float(good.min()):
        return f"below {float(good.min()):.4g}"
    size, others = bad.abs(), good.abs()
    if float(size.min()) >= float(others.max()):
        return f"larger than {float(others.max()):.4g} in size"
    return ""


def _boundaries(region: WrongRegion) -> tuple[MismatchCause, ...]:
    """A mask, a bound or a grid that ends too early."""
    evidence = ""
    n_places = region.last - region.first + 1
    block = region.first & -region.first
    if region.pattern == "tail" and n_places <= _FEW:
        evidence = "only the end is wrong: a bound or a mask ends too early."
    elif region.pattern == "head" and n_places <= _FEW < region.size:
        evidence = "only the beginning is wrong: a bound or an offset begins too late."
    elif region.pattern == "tail" and block >= _LEAST_BLOCK:
        what = "the last, partial block" if n_places < block else "blocks at the end"
        place = f"{region.first}, a multiple of {block}"
        evidence = f"the wrong part begins at {place}: {what} of a grid or loop is missing."
    return (MismatchCause(Cause.BOUNDARY, evidence),) if evidence else ()


def _rounded(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[MismatchCause]:
    """Numbers of half precision in a wider dtype."""
    if actual.dtype not in (torch.float32, torch.float64) or actual.numel() < 4 * _LEAST:
        return
    numbers = actual.reshape(-1)[: 16 * _MAX_SAMPLE]
    exact = expected.reshape(-1)[: 16 * _MAX_SAMPLE].to(numbers.dtype)
    for dtype in (torch.bfloat16, torch.float16):
        if torch.equal(numbers.to(dtype).to(numbers.dtype), numbers) and not torch.equal(
            exact.to(dtype).to(exact.dtype), exact
        ):
            yield MismatchCause(Cause.ROUNDING, f"every element is a number of {str(dtype)[6:]}.")
            return


def _near(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return (one - other).abs() <= _CLOSE * other.abs()


def _most(holds: torch.Tensor) -> bool:
    return bool(holds.numel()) and _share(holds) >= _AGREEING


def _share(holds: torch.Tensor) -> float:
    return float(holds.double().mean()) if holds.numel() else 0.0


def _percent(share: float) -> str:
    return "all" if share >= 1 else f"{100 * share:.2g} %"

"""A wrong output: where it is wrong, by how much, and the likely causes that the evidence shows."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal

import attrs

__all__ = ["Cause", "Mismatch", "MismatchCause", "WrongElement", "describe_mismatch"]


class Cause(StrEnum):
    """Likely cause of wrong values."""

    UNWRITTEN = "unwritten"
    """Wrong elements hold the value with which free memory is filled before a call: the kernel does not write them, or
    reads memory that nothing wrote. Example: `grid = (n // BLOCK,)` leaves the last, partial block."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """Wrong elements depend on loads outside of the tensors, which are NaN in Triton's interpreter. Example: a
    `tl.load` without `mask`."""
    BOUNDARY = "boundary"
    """Wrong elements are the first or last few, or begin at a multiple of a block size: mask, bound or grid end too
    early. Example: `mask = offsets < n - 1`."""
    RACE = "race"
    """Calls with equal inputs have different results, or only calls in another order of threads or programs are wrong:
    threads or programs share data without order. Example: a scratch vector outside of an OpenMP loop."""
    PARAMETERS = "parameters"
    """Another call was right, with other parameters, or the kernel has no tensor for a parameter. Example: a weight
    that the constructor transposes and stores."""
    RANDOM = "random"
    """The reference draws random numbers, so that no kernel can match it. Example: dropout in training mode."""
    FACTORS = "factors"
    """The error is that of factors rounded to 10 bits. Example: `tl.dot(a, b)` of fp32, which uses TF32."""
    ROUNDING = "rounding"
    """The elements are numbers of half precision in a wider dtype. Example: `.to(tl.float16)` before the store."""
    ZERO = "zero"
    """All wrong elements are zero: they are skipped, or a sum starts too late. Example: `tl.where(m, y, 0.0)` with a
    wrong `m`."""
    CONSTANT = "constant"
    """All wrong elements have one value. Example: a loop that stores the sum of the first row for each row."""
    COPY = "copy"
    """Wrong elements equal those of an input. Example: an early `return x`."""
    SHIFTED = "shifted"
    """Wrong elements are those of neighbouring places. Example: `x[i + 1]` for `x[i]`."""
    TRANSPOSED = "transposed"
    """Two axes are exchanged. Example: strides of a transposed input that the kernel assumes."""
    FACTOR = "factor"
    """The output is the expected one times a constant, for all elements or for each row or column. Example: a mean
    divided by the block size; a softmax without its sum."""
    OFFSET = "offset"
    """The output is the expected one plus a constant, for all elements or for each row or column. Example: a bias that
    is not added."""
    RANGE = "range"
    """Only elements are wrong whose expected value, or input, is in a range. Example: `relu` in place of
    `leaky_relu`."""
    UNDEFINED = "undefined"
    """Infinities or NaN come from the computation. Example: `exp` without the maximum subtracted; 0 / 0."""


@attrs.frozen
class MismatchCause:
    """A likely cause of wrong values, with its evidence."""

    kind: Cause
    """Kind of cause. `kernelrl explain incorrect` lists them."""
    evidence: str
    """Observation in this output, as a sentence."""


@attrs.frozen
class WrongElement:
    """One wrong element of an output."""

    index: tuple[int, ...]
    """Index in the output."""
    expected: str
    """Expected value with up to six digits. Text, because JSON has no NaN."""
    actual: str
    """Value of the candidate."""


@attrs.frozen
class Mismatch:
    """Difference between an output and the expected output."""

    kind: Literal["structure", "shape", "dtype", "device", "values", "non_finite", "memory", "inputs", "effects"]
    """Property that differs. `memory`, `inputs`, `effects`: other state that a call changes."""
    output: str
    """Output, or other changed state, as a path such as `[0]`; empty for a single tensor."""
    expected: str = ""
    """Expected structure, shape, dtype or device."""
    actual: str = ""
    """Actual structure, shape, dtype or device."""
    max_abs: float | None = None
    """Largest absolute difference."""
    mean_abs: float | None = None
    """Mean absolute difference."""
    wrong_share: float | None = None
    """Share of elements outside the tolerance, from 0 to 1."""
    shape: tuple[int, ...] | None = None
    """Shape of the output; None if its elements were not compared."""
    dtype: str = ""
    """Dtype of the output, such as `float32`."""
    elements: tuple[WrongElement, ...] = ()
    """The first wrong element and up to three more: the second, the middle and the last one."""
    pattern: Literal["", "all", "tail", "head", "single", "range", "stride", "block", "diagonal", "scattered"] = ""
    """Kind of region that the wrong elements form. `block`: a region along several axes."""
    region: str = ""
    """The region in words, such as `the last 24 of 1000 columns`."""
    causes: tuple[MismatchCause, ...] = ()
    """Likely causes, the best evidence first. Empty if the output does not show one."""

    def with_cause(self, kind: Cause, evidence: str) -> Mismatch:
        """The difference with a further cause in front of the known ones."""
        others = tuple(cause for cause in self.causes if cause.kind is not kind)
        return attrs.evolve(self, causes=(MismatchCause(kind, evidence), *others))


def describe_mismatch(wrong: Mismatch) -> str:
    """A difference in lines: property, region, elements, sizes of the differences, likely causes."""
    lines = [_statement(wrong)]
    if wrong.elements:
        shown = "; ".join(_element(element) for element in wrong.elements)
        lines.append(f"Wrong elements: {shown}.")
    if wrong.max_abs is not None and wrong.mean_abs is not None:
        lines.append(f"Largest difference {wrong.max_abs:.4g}, mean difference {wrong.mean_abs:.4g}.")
    lines += [f"Likely cause ({cause.kind.value}): {cause.evidence}" for cause in wrong.causes]
    return "\n".join(lines)


def _statement(wrong: Mismatch) -> str:
    where = f"Output {wrong.output}" if wrong.output else "The output"
    if wrong.shape is not None:
        where += f" {[*wrong.shape]} {wrong.dtype}"
    match wrong.kind:
        case "values":
            return f"{where} has wrong values{_extent(wrong)}."
        case "non_finite":
            return f"{where} has wrong NaN or infinities{_extent(wrong)}."
        case "inputs":
            named = f"Input {wrong.output}" if wrong.output else "An input"
            return f"{named} was changed by the call. The reference leaves its inputs as they are."
        case "effects":
            where = f"{wrong.output[:1].upper()}{wrong.output[1:]}"
            return f"{where} does not hold after the call what the reference leaves there{_extent(wrong)}."
        case _:
            return f"{where} has the wrong {wrong.kind}: expected {wrong.expected}, got {wrong.actual}."


def _extent(wrong: Mismatch) -> str:
    """Number of the wrong elements, and their region."""
    if wrong.wrong_share is None:
        return f" in {wrong.region}" if wrong.region else ""
    percent = f"{100 * wrong.wrong_share:.3g} %"
    if wrong.shape is None:
        return f" in {percent} of its elements"
    n_elements = math.prod(wrong.shape)
    n_wrong = round(wrong.wrong_share * n_elements)
    text = f" in {n_wrong} of {n_elements} elements ({percent})"
    return f"{text}: {wrong.region}" if wrong.region else text


def _element(element: WrongElement) -> str:
    return f"{[*element.index]} expected {element.expected}, got {element.actual}"

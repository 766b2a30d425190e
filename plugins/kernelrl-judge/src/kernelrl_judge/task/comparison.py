"""Comparison of a candidate's outputs with the expected ones.

There are two profiles. Both require equal structure, shape, dtype and device, and compare every element.

`kernelbench` does the same as KernelBench: `torch.allclose(expected, actual)` in the dtype of the output, which means
`|actual - expected| <= atol + rtol |actual|`. A NaN equals nothing, not even another NaN.

`strict` allows an element e of the expected output the error

    T = atol s + rtol |e|        s = max(rms(row), min(1, rms(output)))

where rms is the root mean square of finite elements, and a row is the smallest group of trailing dimensions with at
least 64 elements. Zeros are therefore no match for an output of size 1e-3, such as a softmax over a thousand elements,
and the error may grow with rows of large numbers. It does not grow in smaller outputs, and where a recipe declares
`atol`: s = min(1, rms(output)). Where PyTorch itself is less exact, the allowed error is

    min(loosest T, max(T, errors E s, errors u |e|))

with the constants `Limits.loosest` and `Limits.errors`; E is the error of PyTorch against double precision, as a share
of s (`Tolerance.own_errors`), and u the unit of rounding in half precision (`Tolerance.rounding`): a kernel may round
intermediate values, and the error of a large element is larger. In smaller outputs u is 0: a mean of many values may be
larger than s. The comparison is in double precision. NaN and infinities must have the same positions and signs.
Integers and truth values must be equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.plain_values import plain
from kernelrl_judge.protocol.trees import decoded, leaves, real
from kernelrl_judge.protocol.values import ObjectLeaf, TensorLeaf

__all__ = [
    "DEFAULT_TOLERANCES",
    "DTYPES",
    "Tolerance",
    "as_rows",
    "compare_bytes",
    "compare_described",
    "compare_values",
    "element_scales",
    "root_mean_square",
    "tolerance",
    "wrong_elements",
]

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
"""Dtype of each value of `EvaluationSettings.cast`."""
_DEFAULT_TOLERANCE = 1e-4
DEFAULT_TOLERANCES = {
    "float16": 1e-2,
    "bfloat16": 1e-2,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
}
"""Default of both parts of the tolerance, by dtype; 1e-4 for wider dtypes. For float8: the distance of neighbouring
values."""
_MARGIN = 1e-3
"""Share by which the comparison in single precision is stricter; far more than its rounding error."""
_COMPARED_AT_ONCE = 1 << 26
"""Largest number of elements that are compared at once: in double precision they need several times their memory."""
_BYTES_AT_ONCE = 1 << 28
"""Largest number of bytes that are compared at once: the comparison needs as many again."""
_MAX_VALUE_CHARACTERS = 200
_MIN_ROW = 64
"""Smallest number of elements of a row, so that its root mean square is stable."""


@attrs.frozen
class Tolerance:
    """Largest error of an element."""

    atol: float | None
    """Absolute part; None: the default of the output's dtype (`DEFAULT_TOLERANCES`)."""
    rtol: float | None
    """Part relative to the element; None: the default of the output's dtype."""
    strict: bool
    """True for the profile `strict`, False for `kernelbench`."""
    grows: bool = False
    """Whether the absolute part grows with the rows of the output."""
    own_errors: Mapping[str, float] = attrs.field(factory=dict)
    """Error of the reference itself by the path of the output, as a share of the scale of its elements."""
    rounding: float = 0.0
    """Error of rounding intermediate values, as a share of the element."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Usual root mean square of an output, by its path. An output that happens to be near zero has this scale."""
    factor: float = 1.0
    """Factor of both parts."""

    def atol_of(self, dtype: torch.dtype) -> float:
        """Absolute part for outputs of a dtype."""
        return self.factor * (_default(dtype) if self.atol is None else self.atol)

    def rtol_of(self, dtype: torch.dtype) -> float:
        """Relative part for outputs of a dtype."""
        return self.factor * (_default(dtype) if self.rtol is None else self.rtol)


def tolerance(settings: EvaluationSettings) -> Tolerance:
    """The tolerance that the settings declare. Where they declare none, the precision decides to which they cast, or
    the dtype of each output."""
    default = None if settings.cast is None else _default(DTYPES[settings.cast])
    return Tolerance(
        atol=default if settings.atol is None else settings.atol,
        rtol=default if settings.rtol is None else settings.rtol,
        strict=settings.profile == "strict",
        grows=settings.atol is None,
    )


def _default(dtype: torch.dtype) -> float:
    return DEFAULT_TOLERANCES.get(str(dtype).removeprefix("torch."), _DEFAULT_TOLERANCE)


def compare_described(expected: Any, actual: Any, device: str, path: str = "") -> Mismatch | None:
    """Compare structure, shape, dtype and device before any byte of an output is read.

    Args:
        expected: value of the reference, with tensors.
        actual: tree of the candidate, with `TensorLeaf` in place of tensors.
        device: device type of the outputs.
        path: path of the value in the output.
    """
    if isinstance(expected, torch.Tensor):
        return _compare_leaf(expected, actual, device, path)
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return _structure_mismatch(expected, actual, path)
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(expected, actual, strict=True))]
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or expected.keys() != actual.keys():
            return _structure_mismatch(expected, actual, path)
        pairs = [(f"{path}[{key!r}]", value, actual[key]) for key, value in expected.items()]
    else:
        wanted = plain(expected, flat=True)
        return None if _kind(wanted) == _kind(actual) else _structure_mismatch(wanted, actual, path)
    found = (compare_described(want, got, device, item_path) for item_path, want, got in pairs)
    return next((mismatch for mismatch in found if mismatch is not None), None)


def _compare_leaf(expected: torch.Tensor, actual: Any, device: str, path: str) -> Mismatch | None:
    if not isinstance(actual, TensorLeaf):
        return _structure_mismatch(expected, actual, path)
    expected_dtype = str(expected.dtype).removeprefix("torch.")
    if actual.shape != tuple(expected.shape):
        return Mismatch("shape", path, str(tuple(expected.shape)), str(actual.shape))
    if actual.dtype != expected_dtype:
        return Mismatch("dtype", path, expected_dtype, actual.dtype)
    if actual.device != device:
        return Mismatch("device", path, device, actual.device)
    return None


def _structure_mismatch(expected: Any, actual: Any, path: str) -> Mismatch:
    return Mismatch("structure", path, _outline(expected), _outline(actual))


def compare_values(expected: Any, actual: Any, limit: Tolerance) -> Mismatch | None:
    """Compare the elements of outputs with equal structure, shapes and dtypes. `actual` has tensors, not leaves."""
    for path, want, got in leaves(expected, actual):
        found = None
        if isinstance(want, torch.Tensor):
            found = _compare_tensor(want, got, limit, path)
        else:
            found = _compare_plain(plain(want, flat=True), plain(got, flat=True), limit, path)
        if found is not None:
            return found
    return None


def _compare_plain(expected: Any, actual: Any, limit: Tolerance, path: str) -> Mismatch | None:
    """Compare values of one kind that are no tensors."""
    if _kind(expected) in ("float", "complex"):
        numbers = (value.parts if isinstance(value, ObjectLeaf) else value for value in (expected, actual))
        want, got = (torch.tensor(number, dtype=torch.float64) for number in numbers)
        return _compare_tensor(want, got, limit, path)
    if expected == actual:
        return None
    want_text, got_text = (repr(value)[:_MAX_VALUE_CHARACTERS] for value in (expected, actual))
    return Mismatch("values", path, want_text, got_text)


def _kind(value: Any) -> str:
    """Kind of a plain value that is no tensor."""
    return value.kind if isinstance(value, ObjectLeaf) else type(value).__name__


def compare_bytes(first: Any, second: Any) -> Mismatch | None:
    """Find the first tensor that is not equal in both values, bit by bit. Structure, shapes and dtypes are equal."""
    for path, left, right in leaves(first, second):
        if isinstance(left, torch.Tensor) and not _equal_bytes(left, right):
            return Mismatch("values", path)
    return None


def _equal_bytes(first: torch.Tensor, second: torch.Tensor) -> bool:
    left, right = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (first, second))
    parts = zip(torch.split(left, _BYTES_AT_ONCE), torch.split(right, _BYTES_AT_ONCE), strict=True)
    return all(torch.equal(one.to(other.device), other) for one, other in parts)


def _compare_tensor(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, path: str) -> Mismatch | None:
    found = [
        (want.numel(), None if wrong is None else _difference(want, got, wrong, path))
        for want, got, wrong in _judged_blocks(expected, actual, limit, path)
    ]
    wrong = [(count, mismatch) for count, mismatch in found if mismatch is not None]
    if not wrong or len(found) == 1:
        return found[0][1]
    first = next((mismatch for _, mismatch in wrong if mismatch.kind == "non_finite"), wrong[0][1])
    n_elements = sum(count for count, _ in found)
    return attrs.evolve(
        first,
        max_abs=max((mismatch.max_abs for _, mismatch in wrong if mismatch.max_abs is not None), default=None),
        mean_abs=sum(count * (mismatch.mean_abs or 0.0) for count, mismatch in wrong) / n_elements,
        wrong_share=sum(count * (mismatch.wrong_share or 0.0) for count, mismatch in wrong) / n_elements,
    )


def wrong_elements(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, path: str) -> torch.Tensor:
    """Which elements are outside of the tolerance.

    Args:
        expected, actual: outputs of one shape.
        path: path of the output.

    Returns:
        Truth values in the shape of the output.
    """
    parts = [
        torch.zeros(want.shape, dtype=torch.bool, device=want.device) if wrong is None else wrong
        for want, _, wrong in _judged_blocks(expected, actual, limit, path)
    ]
    # Blocks are groups of rows, or of columns where one row is too long.
    n_columns = as_rows(real(expected)).shape[1]
    rows = torch.cat(parts, dim=0 if parts[0].shape[1] == n_columns else 1)
    if expected.is_complex():
        return rows.reshape(*expected.shape, 2).any(-1)
    return rows.reshape(expected.shape)


def _judged_blocks(
    expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, path: str
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]]:
    """Blocks of both outputs that are compared at once, with their wrong elements; None if all are right."""
    actual = actual.to(expected.device)
    atol, rtol = limit.atol_of(actual.dtype), limit.rtol_of(actual.dtype)
    expected, actual = decoded(expected), decoded(actual)
    if expected.is_floating_point() or expected.is_complex():
        # The expected output may be in double precision.
        actual = actual.to(torch.promote_types(expected.dtype, actual.dtype))
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    expected, actual = as_rows(expected), as_rows(actual)
    scales = element_scales(expected, limit, path)
    rounding = limit.rounding if _grows(expected, limit) else 0.0
    is_single = limit.grows and expected.numel() == 1
    usual = limit.scales.get(path, 0.0) if is_single else 0.0
    bounds = _Bounds(limit, atol, rtol, scales, limit.own_errors.get(path, 0.0), rounding, usual)
    for want, got, scale in _blocks(expected, actual, bounds.scale):
        yield want, got, _wrong_in_block(want, got, attrs.evolve(bounds, scale=scale))


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as [rows, elements]: a row is the smallest group of trailing dimensions with at least 64 elements."""
    length = 1
    for size in reversed(tensor.shape):
        if length >= _MIN_ROW:
            break
        length *= size
    return tensor.reshape(-1, length) if tensor.numel() else tensor.reshape(1, 0)


def element_scales(rows: torch.Tensor, limit: Tolerance, path: str) -> torch.Tensor:
    """Scale of the elements of each row, by which their errors are measured.

    Args:
        rows: [rows, elements] an expected output.
        path: path of the output.

    Returns:
        [rows, 1] in double precision.
    """
    ones = torch.ones(len(rows), 1, dtype=torch.float64, device=rows.device)
    if not limit.strict or not rows.is_floating_point() or not rows.numel():
        return ones
    row_scales, whole = _root_mean_squares(rows)
    floor = min(1.0, max(whole, limit.scales.get(path, 0.0)))
    scales = row_scales.clamp_min(floor) if _grows(rows, limit) else ones * floor
    return scales.clamp_min(LIMITS.smallest_scale)


def _grows(rows: torch.Tensor, limit: Tolerance) -> bool:
    """Whether the tolerance of an output grows with its rows."""
    return limit.grows and rows.shape[1] >= _MIN_ROW


def root_mean_square(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements; 1 if there are none."""
    return _root_mean_squares(as_rows(tensor))[1] if tensor.numel() else 1.0


def _root_mean_squares(rows: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Root mean square of the finite elements of each row [rows, 1], and of all; 1 where there are none."""
    norms = torch.cat([_norms(part) for part in _row_parts(rows)])
    counts = torch.full_like(norms, rows.shape[1])
    if not bool(torch.isfinite(norms).all()):
        norms = torch.cat([_norms(torch.where(torch.isfinite(part), part, 0.0)) for part in _row_parts(rows)])
        counts = torch.cat([torch.isfinite(part).sum(1, keepdim=True).double() for part in _row_parts(rows)])
    n_finite = float(counts.sum())
    whole = (float(norms.square().sum()) / n_finite) ** 0.5 if n_finite else 1.0
    return torch.where(counts > 0, norms / counts.clamp_min(1).sqrt(), 1.0), whole


def _norms(rows: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
    return norms


def _row_parts(rows: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.split(rows, max(1, _COMPARED_AT_ONCE // max(1, rows.shape[1])))


def _blocks(
    expected: torch.Tensor, actual: torch.Tensor, scales: torch.Tensor
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Parts of outputs that are compared at once, with the scales of their rows."""
    columns = max(1, expected.shape[1])
    if columns > _COMPARED_AT_ONCE:
        size = max(1, _COMPARED_AT_ONCE // len(expected))
        for want, got in zip(torch.split(expected, size, dim=1), torch.split(actual, size, dim=1), strict=True):
            yield want, got, scales
        return
    size = _COMPARED_AT_ONCE // columns
    yield from zip(*(torch.split(tensor, size) for tensor in (expected, actual, scales)), strict=True)


@attrs.frozen
class _Bounds:
    """The tolerance for one output."""

    limit: Tolerance
    atol: float
    rtol: float
    scale: torch.Tensor
    """[rows, 1] factor of the absolute part."""
    own_error: float
    """Error of the reference itself, as a share of the scale."""
    rounding: float
    """Error of rounding intermediate values, as a share of the element."""
    usual: float = 0.0
    """Least magnitude of an element for the relative part: a single sum may happen to cancel."""


def _wrong_in_block(expected: torch.Tensor, actual: torch.Tensor, bounds: _Bounds) -> torch.Tensor | None:
    """Which elements are wrong; None if none is."""
    if not bounds.limit.strict:
        wrong = ~torch.isclose(expected, actual, rtol=bounds.rtol, atol=bounds.atol)
    elif not expected.is_floating_point():
        wrong = expected != actual
    elif _surely_close(expected, actual, bounds):
        return None
    else:
        wrong = _beyond_tolerance(expected.double(), actual.double(), bounds)
    return wrong if bool(wrong.any()) else None


def _beyond_tolerance(want: torch.Tensor, got: torch.Tensor, bounds: _Bounds) -> torch.Tensor:
    """Which elements are outside of the tolerance of profile `strict`, in double precision."""
    is_same_infinity = torch.isnan(want) & torch.isnan(got) | (want == got)
    allowed = bounds.atol * bounds.scale + bounds.rtol * want.abs().clamp_min(bounds.usual)
    if bounds.own_error:
        by_own_error = LIMITS.errors * torch.maximum(bounds.own_error * bounds.scale, bounds.rounding * want.abs())
        allowed = torch.maximum(allowed, torch.minimum(LIMITS.loosest * allowed, by_own_error))
    is_close = (got - want).abs() <= allowed
    return ~torch.where(torch.isfinite(want), is_close, is_same_infinity)


def _surely_close(expected: torch.Tensor, actual: torch.Tensor, bounds: _Bounds) -> bool:
    """Whether outputs are close by a stricter comparison, which costs a fraction of that in double precision."""
    if expected.element_size() < 4:
        expected, actual = expected.float(), actual.float()
    allowed = bounds.rtol * expected.abs() + (bounds.atol * bounds.scale).to(expected.dtype)
    differences = (actual - expected).abs()
    # The full comparison judges infinities and NaN.
    is_close = (differences <= allowed * (1 - _MARGIN)) & torch.isfinite(differences)
    return bool(is_close.all())


def _difference(expected: torch.Tensor, actual: torch.Tensor, wrong: torch.Tensor, path: str) -> Mismatch:
    """The difference of a block with wrong elements."""
    want, got = expected.double(), actual.double()
    share = float(wrong.double().mean())
    finite = torch.isfinite(want) & torch.isfinite(got)
    if bool((wrong & ~finite).any()):
        return Mismatch("non_finite", path, wrong_share=share)
    difference = torch.where(finite, got - want, 0.0).abs()
    return Mismatch(
        "values", path, max_abs=float(difference.max()), mean_abs=float(difference.mean()), wrong_share=share
    )


def _outline(value: Any) -> str:
    if isinstance(value, torch.Tensor | TensorLeaf):
        return "a tensor"
    if isinstance(value, dict):
        return f"a dict with the keys {repr([*value])[1:-1][:_MAX_VALUE_CHARACTERS]}" if value else "an empty dict"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a value of type {_kind(value)}"

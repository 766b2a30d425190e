"""Comparison of a candidate's outputs with the expected ones.

There are two profiles. Both require equal structure, shape, dtype and device, and compare every element.

`kernelbench` does the same as KernelBench: `torch.allclose(expected, actual)` in the dtype of the output, which means
`|actual - expected| <= atol + rtol |actual|`. A NaN equals nothing, not even another NaN.

`strict` scales the absolute part to the output: `|actual - expected| <= atol min(1, rms(expected)) + rtol |expected|`,
where rms is the root mean square of the finite expected elements. Zeros are therefore no match for an output of size
1e-3, such as a softmax over a thousand elements. The comparison is in double precision. NaN and infinities must have
the same positions and signs. Integers and truth values must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.protocol.values import TensorLeaf

__all__ = ["Tolerance", "compare_bytes", "compare_described", "compare_values", "root_mean_square", "tolerance"]

_MARGIN = 1e-3
"""Share by which the comparison in single precision is stricter; far more than its rounding error."""
_COMPARED_AT_ONCE = 1 << 26
"""Largest number of elements that are compared at once: in double precision they need several times their memory."""
_BYTES_AT_ONCE = 1 << 28
"""Largest number of bytes that are compared at once: the comparison needs as many again."""
_MAX_VALUE_CHARACTERS = 200


@attrs.frozen
class Tolerance:
    """Largest error of an element."""

    atol: float
    """Absolute part."""
    rtol: float
    """Part relative to the element."""
    strict: bool
    """True for the profile `strict`, False for `kernelbench`."""
    own_error: float = 0.0
    """Largest error of the reference itself. `Limits.own_errors` times this error is allowed, but at most
    `Limits.most_loosened` times the sum of the other two parts."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Usual root mean square of an output, by its path. An output that happens to be near zero has this scale."""


def tolerance(settings: EvaluationSettings) -> Tolerance:
    """The tolerance that the settings declare. Default: 1e-4 for fp32, 1e-2 for fp16 and bf16."""
    default = 1e-4 if settings.precision == "fp32" else 1e-2
    return Tolerance(
        atol=default if settings.atol is None else settings.atol,
        rtol=default if settings.rtol is None else settings.rtol,
        strict=settings.profile == "strict",
    )


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
        if not isinstance(actual, dict) or list(map(str, expected)) != list(actual):
            return _structure_mismatch(expected, actual, path)
        pairs = [(f"{path}[{key!r}]", value, actual[str(key)]) for key, value in expected.items()]
    else:
        return None if type(expected) is type(actual) else _structure_mismatch(expected, actual, path)
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
        elif isinstance(want, float):
            expected_number = torch.tensor(want, dtype=torch.float64)
            actual_number = torch.tensor(got, dtype=torch.float64)
            found = _compare_tensor(expected_number, actual_number, limit, path)
        elif want != got:
            found = Mismatch("values", path, repr(want), repr(got)[:_MAX_VALUE_CHARACTERS])
        if found is not None:
            return found
    return None


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
    actual = actual.to(expected.device)
    if expected.is_floating_point():
        # The expected output may be in double precision.
        actual = actual.to(torch.promote_types(expected.dtype, actual.dtype))
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    expected, actual = expected.reshape(-1), actual.reshape(-1)
    scale = _scale(expected, limit, path)
    parts = zip(torch.split(expected, _COMPARED_AT_ONCE), torch.split(actual, _COMPARED_AT_ONCE), strict=True)
    found = [(len(want), _compare_block(want, got, limit, scale, path)) for want, got in parts]
    wrong = [(count, mismatch) for count, mismatch in found if mismatch is not None]
    if not wrong or len(found) == 1:
        return found[0][1]
    first = next((mismatch for _, mismatch in wrong if mismatch.kind == "non_finite"), wrong[0][1])
    return attrs.evolve(
        first,
        max_abs=max((mismatch.max_abs for _, mismatch in wrong if mismatch.max_abs is not None), default=None),
        mean_abs=sum(count * (mismatch.mean_abs or 0.0) for count, mismatch in wrong) / expected.numel(),
        wrong_share=sum(count * (mismatch.wrong_share or 0.0) for count, mismatch in wrong) / expected.numel(),
    )


def _scale(expected: torch.Tensor, limit: Tolerance, path: str) -> float:
    """Factor of the absolute tolerance: the root mean square of the finite elements, at most 1."""
    if not limit.strict or not expected.is_floating_point():
        return 1.0
    scale = max(root_mean_square(expected), limit.scales.get(path, 0.0))
    return max(min(1.0, scale), LIMITS.smallest_scale)


def root_mean_square(tensor: torch.Tensor) -> float:
    """Root mean square of the finite elements; 1 if there are none."""
    squares, count = 0.0, 0
    for part in torch.split(tensor.reshape(-1), _COMPARED_AT_ONCE):
        norm = float(torch.linalg.vector_norm(part, dtype=torch.float64))
        if math.isfinite(norm):
            squares, count = squares + norm * norm, count + part.numel()
            continue
        finite = torch.isfinite(part)
        squares += float(torch.where(finite, part.double(), 0.0).square().sum())
        count += int(finite.sum())
    return (squares / count) ** 0.5 if count else 1.0


def _compare_block(
    expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, scale: float, path: str
) -> Mismatch | None:
    if not limit.strict:
        return _compare_as_allclose(expected, actual, limit, path)
    if not expected.is_floating_point():
        if torch.equal(expected, actual):
            return None
        return _differences(expected.double(), actual.double(), expected != actual, path)
    if _surely_close(expected, actual, limit, scale):
        return None
    want, got = expected.double(), actual.double()
    finite = torch.isfinite(want)
    if not torch.equal(finite, torch.isfinite(got)):
        wrong = finite != torch.isfinite(got)
        return Mismatch("non_finite", path, wrong_share=float(wrong.double().mean()))
    is_same_infinity = torch.isnan(want) & torch.isnan(got) | (want == got)
    allowed = limit.atol * scale + limit.rtol * want.abs()
    if limit.own_error:
        max_own_error = LIMITS.own_errors * limit.own_error
        allowed = torch.maximum(allowed, (LIMITS.most_loosened * allowed).clamp_max(max_own_error))
    is_close = (got - want).abs() <= allowed
    wrong = ~torch.where(finite, is_close, is_same_infinity)
    if not bool(wrong.any()):
        return None
    return _differences(torch.where(finite, want, 0.0), torch.where(finite, got, 0.0), wrong, path)


def _surely_close(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, scale: float) -> bool:
    """Whether outputs are close by a stricter comparison, which costs a fraction of that in double precision."""
    if expected.element_size() < 4:
        expected, actual = expected.float(), actual.float()
    strictness = 1 - _MARGIN
    close = torch.isclose(actual, expected, rtol=limit.rtol * strictness, atol=limit.atol * scale * strictness)
    return bool(close.all())


def _compare_as_allclose(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, path: str) -> Mismatch | None:
    wrong = ~torch.isclose(expected, actual, rtol=limit.rtol, atol=limit.atol)
    if not bool(wrong.any()):
        return None
    want, got = expected.double(), actual.double()
    finite = torch.isfinite(want) & torch.isfinite(got)
    if bool((wrong & ~finite).any()):
        return Mismatch("non_finite", path, wrong_share=float(wrong.double().mean()))
    return _differences(torch.where(finite, want, 0.0), torch.where(finite, got, 0.0), wrong, path)


def _differences(want: torch.Tensor, got: torch.Tensor, wrong: torch.Tensor, path: str) -> Mismatch:
    difference = (got - want).abs()
    return Mismatch(
        "values",
        path,
        max_abs=float(difference.max()) if difference.numel() else None,
        mean_abs=float(difference.mean()) if difference.numel() else None,
        wrong_share=float(wrong.double().mean()) if wrong.numel() else None,
    )


def _outline(value: Any) -> str:
    if isinstance(value, torch.Tensor | TensorLeaf):
        return "a tensor"
    if isinstance(value, list | tuple | dict):
        return f"a {type(value).__name__} of {len(value)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"

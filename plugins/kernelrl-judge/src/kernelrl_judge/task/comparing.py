"""Comparison of a candidate's outputs with the expected ones.

Two profiles. `kernelbench` does what KernelBench does, `torch.allclose(expected, actual)` in the type of the output:
`|actual - expected| <= atol + rtol |actual|`, and a NaN equals nothing, not even another NaN. `strict` scales the
absolute part to the output: `|actual - expected| <= atol min(1, rms(expected)) + rtol |expected|`, where rms is the
root mean square of the finite expected elements. So an output of size 1e-3, a softmax over a thousand elements say, is
not matched by zeros. It compares in double precision, NaN and infinities must stand in the same places with the same
sign, and integers and truth values must be equal exactly. Both compare every element; structure, shape, dtype and
device must be equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Mismatch
from kernelrl_judge.protocol.limits import LIMITS
from kernelrl_judge.protocol.trees import leaves
from kernelrl_judge.protocol.values import TensorLeaf

__all__ = ["Tolerance", "compare_bytes", "compare_described", "compare_values", "root_mean_square", "tolerance"]

_MARGIN = 1e-3
"""By how much a comparison in single precision is stricter: far more than it rounds."""
_COMPARED_AT_ONCE = 1 << 26
"""Elements: the comparison is made in double precision and needs several times their memory."""
_BYTES_AT_ONCE = 1 << 28
"""A comparison of bytes needs as many again."""


@attrs.frozen
class Tolerance:
    """How far an element may be off."""

    atol: float
    rtol: float
    strict: bool
    """Which profile compares."""
    own_error: float = 0.0
    """Largest error of the reference itself. Up to `Limits.own_errors` times it is allowed, within
    `Limits.most_loosened` times the other two parts."""
    scales: Mapping[str, float] = attrs.field(factory=dict)
    """Usual root mean square of an output, by its path. An output that happens to be near zero has this scale."""


def tolerance(settings: EvaluationSettings) -> Tolerance:
    """The tolerance in force: 1e-4 for fp32 and 1e-2 for fp16 and bf16, unless the settings say otherwise."""
    usual = 1e-4 if settings.precision == "fp32" else 1e-2
    return Tolerance(
        atol=usual if settings.atol is None else settings.atol,
        rtol=usual if settings.rtol is None else settings.rtol,
        strict=settings.profile == "strict",
    )


def compare_described(expected: Any, actual: Any, device: str, path: str = "") -> Mismatch | None:
    """Compare structure, shape, dtype and device before any byte of an output is read.

    Args:
        expected: value of the reference, with tensors.
        actual: tree of the candidate, with `TensorLeaf` in the place of tensors.
        device: device type the outputs must lie on.
    """
    other = Mismatch("structure", path, _outline(expected), _outline(actual))
    if isinstance(expected, torch.Tensor):
        if not isinstance(actual, TensorLeaf):
            return other
        kinds = {
            "shape": (str(tuple(expected.shape)), str(actual.shape)),
            "dtype": (str(expected.dtype).removeprefix("torch."), actual.dtype),
            "device": (device, actual.device),
        }
        return next((Mismatch(kind, path, *pair) for kind, pair in kinds.items() if pair[0] != pair[1]), None)
    if isinstance(expected, list | tuple):
        if not isinstance(actual, list | tuple) or len(actual) != len(expected):
            return other
        pairs = [(f"{path}[{index}]", *pair) for index, pair in enumerate(zip(expected, actual, strict=True))]
    elif isinstance(expected, dict):
        if not isinstance(actual, dict) or list(map(str, expected)) != list(actual):
            return other
        pairs = [(f"{path}[{key!r}]", value, actual[str(key)]) for key, value in expected.items()]
    else:
        return None if type(expected) is type(actual) else other
    found = (compare_described(want, got, device, below) for below, want, got in pairs)
    return next((mismatch for mismatch in found if mismatch is not None), None)


def compare_values(expected: Any, actual: Any, limit: Tolerance) -> Mismatch | None:
    """Compare the elements of outputs whose description is equal; `actual` holds tensors again."""
    for path, want, got in leaves(expected, actual):
        if isinstance(want, float):
            want, got = (torch.tensor(number, dtype=torch.float64) for number in (want, got))
        if isinstance(want, torch.Tensor):
            found = _compare_tensor(want, got, limit, path)
        else:
            found = None if want == got else Mismatch("values", path, repr(want), repr(got)[:200])
        if found is not None:
            return found
    return None


def compare_bytes(first: Any, second: Any) -> Mismatch | None:
    """The first tensor that is not the same in both, bit by bit; their description is equal."""
    for path, *pair in leaves(first, second):
        if isinstance(pair[0], torch.Tensor):
            left, right = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in pair)
            parts = zip(left.split(_BYTES_AT_ONCE), right.split(_BYTES_AT_ONCE), strict=True)
            if not all(torch.equal(one.to(other.device), other) for one, other in parts):
                return Mismatch("values", path)
    return None


def _compare_tensor(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, path: str) -> Mismatch | None:
    actual = actual.to(expected.device)
    if expected.is_floating_point():
        # The expected output may be that in double precision.
        actual = actual.to(torch.promote_types(expected.dtype, actual.dtype))
    if expected.is_complex():
        expected, actual = torch.view_as_real(expected), torch.view_as_real(actual)
    expected, actual = expected.reshape(-1), actual.reshape(-1)
    scale = _scale(expected, limit, path)
    parts = zip(expected.split(_COMPARED_AT_ONCE), actual.split(_COMPARED_AT_ONCE), strict=True)
    found = [(len(want), _compare_block(want, got, limit, scale, path)) for want, got in parts]
    wrong = [(count, mismatch) for count, mismatch in found if mismatch is not None]
    if not wrong or len(found) == 1:
        return found[0][1]
    kind = next((mismatch for _, mismatch in wrong if mismatch.kind == "non_finite"), wrong[0][1])
    return attrs.evolve(
        kind,
        max_abs=max((mismatch.max_abs for _, mismatch in wrong if mismatch.max_abs is not None), default=None),
        mean_abs=sum(count * (mismatch.mean_abs or 0.0) for count, mismatch in wrong) / expected.numel(),
        wrong_share=sum(count * (mismatch.wrong_share or 0.0) for count, mismatch in wrong) / expected.numel(),
    )


def _scale(expected: torch.Tensor, limit: Tolerance, path: str) -> float:
    """What the absolute tolerance is multiplied by: the root mean square of the finite elements, at most 1."""
    if not limit.strict or not expected.is_floating_point():
        return 1.0
    return max(min(1.0, max(root_mean_square(expected), limit.scales.get(path, 0.0))), LIMITS.smallest_scale)


def root_mean_square(expected: torch.Tensor) -> float:
    """Of the finite elements; 1 where there are none."""
    squares, count = 0.0, 0
    for part in expected.reshape(-1).split(_COMPARED_AT_ONCE):
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
    same_infinity = torch.isnan(want) & torch.isnan(got) | (want == got)
    allowed = limit.atol * scale + limit.rtol * want.abs()
    if limit.own_error:
        most = LIMITS.own_errors * limit.own_error
        allowed = torch.maximum(allowed, (LIMITS.most_loosened * allowed).clamp_max(most))
    close = (got - want).abs() <= allowed
    wrong = ~torch.where(finite, close, same_infinity)
    if not bool(wrong.any()):
        return None
    return _differences(torch.where(finite, want, 0.0), torch.where(finite, got, 0.0), wrong, path)


def _surely_close(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance, scale: float) -> bool:
    """Whether outputs are close beyond doubt, at a fraction of what the comparison in double precision costs."""
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

"""Matrix products as on a device: in tf32, with operands that fit into shared memory.

`tl.dot` of float32 uses tf32 unless the kernel requests another precision. The interpreter always multiplies in float32
and accepts blocks of any size. Here operands are rounded as on a device, and operands that do not fit raise Triton's
error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.errors import OutOfResources

__all__ = ["check_size", "in_tf32", "install"]

_EXPONENT = np.uint32(0x7F800000)
_DROPPED = np.uint32(13)
"""Mantissa bits of float32 that tf32 lacks."""
_SHARED_BYTES = 232_448
"""Maximum shared memory of a block, on the devices with most of it."""


def install(values: Callable[[Any], Any]) -> None:
    """Check the operands of every product of this process from now on, and round them where tf32 is used.

    Args:
        values: returns the array of an interpreter handle.
    """
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _rounding(builder.create_dot, values)


def in_tf32(values: Any) -> Any:
    """Round float32 values to the nearest tf32 value; infinities and NaN are unchanged."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32((1 << (int(_DROPPED) - 1)) - 1) + ((bits >> _DROPPED) & np.uint32(1))
    rounded = (bits + half) >> _DROPPED << _DROPPED
    return np.where((bits & _EXPONENT) == _EXPONENT, bits, rounded).view(np.float32)


def check_size(left: int, right: int, *, at_once: bool) -> None:
    """Check that the operands of a product fit into shared memory.

    Args:
        left: size of the first operand in bytes.
        right: size of the second operand in bytes.
        at_once: whether both must be in shared memory at the same time, as for tensor cores.

    Raises:
        OutOfResources: they do not fit.
    """
    required = left + right if at_once else max(left, right)
    if required > _SHARED_BYTES:
        raise OutOfResources(required, _SHARED_BYTES, "shared memory")


def _rounding(dot: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(dot)
    def wrapper(self: Any, left: Any, right: Any, more: Any, precision: Any, *others: Any) -> Any:
        sizes = (
            values(factor).size * max(1, factor.get_element_ty().primitive_bitwidth // 8) for factor in (left, right)
        )
        width = left.get_element_ty().primitive_bitwidth
        in_cores = width < 32 or (width == 32 and getattr(precision, "name", "") != "IEEE")
        check_size(*sizes, at_once=in_cores)
        if getattr(precision, "name", "") == "TF32":
            left, right = (
                interpreter.TensorHandle(in_tf32(values(factor)), factor.dtype)
                if values(factor).dtype == np.float32
                else factor
                for factor in (left, right)
            )
        return dot(self, left, right, more, precision, *others)

    return wrapper

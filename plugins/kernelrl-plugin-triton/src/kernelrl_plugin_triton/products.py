"""Products as a device makes them: in tf32, and of factors that its shared memory holds.

`tl.dot` of single precision uses tf32 unless its kernel asks for something else. The interpreter multiplies in single
precision whatever is asked for, and blocks of any size. Here factors are rounded as a device rounds them, and those
that do not fit end the kernel with Triton's error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter
from triton.runtime.errors import OutOfResources

__all__ = ["in_tf32", "install", "look_at_size"]

_EXPONENT = np.uint32(0x7F800000)
_DROPPED = np.uint32(13)
"""Bits of the fraction that tf32 does not have."""
_SHARED_BYTES = 232_448
"""Of shared memory that a block has at most, on the devices that have most of it."""


def install(values: Callable[[Any], Any]) -> None:
    """Look at the factors of every product of this process from now on, and round them where it is made in tf32.

    Args:
        values: what lies behind a handle of the interpreter.
    """
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _rounding(builder.create_dot, values)


def in_tf32(values: Any) -> Any:
    """Numbers of single precision, rounded to the nearest of tf32; what is not finite stays."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    half = np.uint32((1 << (int(_DROPPED) - 1)) - 1) + ((bits >> _DROPPED) & np.uint32(1))
    rounded = (bits + half) >> _DROPPED << _DROPPED
    return np.where((bits & _EXPONENT) == _EXPONENT, bits, rounded).view(np.float32)


def look_at_size(left: int, right: int, *, at_once: bool) -> None:
    """Let pass the factors of a product that a device could hold.

    Args:
        left: bytes of the first factor.
        right: of the second.
        at_once: whether both lie in shared memory at the same time, as for tensor cores; otherwise one after the other
            may.

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
        look_at_size(*sizes, at_once=in_cores)
        if getattr(precision, "name", "") == "TF32":
            left, right = (
                interpreter.TensorHandle(in_tf32(values(factor)), factor.dtype)
                if values(factor).dtype == np.float32
                else factor
                for factor in (left, right)
            )
        return dot(self, left, right, more, precision, *others)

    return wrapper

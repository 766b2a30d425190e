"""Products in tf32, which is what `tl.dot` of single precision uses unless its kernel asks for something else.

The interpreter multiplies in single precision whatever is asked for. Here factors are rounded as a device rounds them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.runtime import interpreter

__all__ = ["in_tf32", "install"]

_EXPONENT = np.uint32(0x7F800000)
_DROPPED = np.uint32(13)
"""Bits of the fraction that tf32 does not have."""


def install(values: Callable[[Any], Any]) -> None:
    """Round the factors of every product of this process from now on, where it is to be made in tf32.

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


def _rounding(dot: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(dot)
    def wrapper(self: Any, left: Any, right: Any, more: Any, precision: Any, *others: Any) -> Any:
        if getattr(precision, "name", "") == "TF32":
            left, right = (
                interpreter.TensorHandle(in_tf32(values(factor)), factor.dtype)
                if values(factor).dtype == np.float32
                else factor
                for factor in (left, right)
            )
        return dot(self, left, right, more, precision, *others)

    return wrapper

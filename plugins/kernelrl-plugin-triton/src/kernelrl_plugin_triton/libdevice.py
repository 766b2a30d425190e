"""Functions of libdevice in the interpreter, which has none, by NumPy."""

from __future__ import annotations

import functools
import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from triton.language.extra import libdevice as every_device
from triton.language.extra.cuda import libdevice as cuda
from triton.runtime import interpreter

__all__ = ["install"]

_PREFIX = "__nv_"
_NAMES: dict[str, Callable[..., Any]] = {
    "pow": np.power,
    "powi": np.power,
    "exp10": lambda x: np.power(x.dtype.type(10), x),
    "fdivide": np.divide,
    "saturate": lambda x: np.fmin(np.fmax(x, 0), 1),
    "finite": np.isfinite,
    "isfinited": np.isfinite,
    "isinfd": np.isinf,
    "isnand": np.isnan,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "round": lambda x: np.trunc(x + np.copysign(x.dtype.type(0.5), x)),
    "nearbyint": np.rint,
    "llrint": np.rint,
    "fma": lambda x, y, z: x * y + z,
    "erf": np.vectorize(math.erf),
    "erfc": np.vectorize(math.erfc),
    "lgamma": np.vectorize(math.lgamma),
    "tgamma": np.vectorize(math.gamma),
}
_NAMES |= {f"a{name}{end}": getattr(np, f"arc{name}{end}") for name in ("sin", "cos", "tan") for end in ("", "h")}
_NAMES["atan2"] = np.arctan2
_ROUNDED = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}
_NAMES |= {f"{letter}{name}_rn": function for letter in "fd" for name, function in _ROUNDED.items()}


def install() -> None:
    """Have the functions of libdevice compute. Attribute `compiled` of each is the one that it replaces."""
    interpreter.InterpreterBuilder.create_extern_elementwise = _elementwise
    for name, function in [*vars(cuda).items()]:
        if isinstance(function, types.FunctionType) and not name.startswith("_"):
            for module in (cuda, every_device):
                setattr(module, name, _callable(function))


def _callable(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any) -> Any:
        return function(*arguments, _semantic=interpreter.interpreter_semantic)

    wrapper.compiled = function  # type: ignore[attr-defined]
    return wrapper


def _elementwise(self: Any, library: str, path: str, symbol: str, given: Any, kind: Any, is_pure: bool) -> Any:
    name = symbol.removeprefix(_PREFIX).removeprefix("fast_")
    if name not in _NAMES and not hasattr(np, name):
        name = name.removesuffix("f")
    function = _NAMES.get(name) or getattr(np, name, None)
    if not symbol.startswith(_PREFIX) or function is None:
        raise NotImplementedError(f"Triton's interpreter has no {symbol}; use functions of triton.language")
    scalar = kind.scalar
    made = np.asarray(function(*(each.data for each in given))).astype(interpreter._get_np_dtype(scalar))
    return interpreter.TensorHandle(made, scalar)

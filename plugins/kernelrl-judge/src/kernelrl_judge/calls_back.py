"""Ways from an extension to Python, and from Python to functions of libraries.

Python at work within a function of an extension could have another library compute what the function is paid for:
neither operators nor who writes are known there. C++ that takes an item of an object, sets an attribute or adds two
objects calls what their classes have for it, and needs no import that other modules of pybind11 do not have. Here
Python's functions that begin meanwhile are seen, and objects that could bring functions along. Not seen is what runs in
other threads, and what lies behind objects that C++ found by itself and that is written in C.

Functions of libraries that Python has looked up by their names can be called from there, and in C++ by their address.
"""

from __future__ import annotations

import datetime
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch._library import simple_registry

__all__ = ["begin", "is_told_of", "look_up", "looked_up"]

_DEPTH = 8
_CAPSULE: type = type(vars(datetime)["datetime_CAPI"])
_PLAIN = frozenset(
    {type(None), bool, int, float, complex, str, bytes, slice, range, type(...), _CAPSULE}
    | {torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.Generator}
    | {kind for kind in vars(numpy).values() if isinstance(kind, type) and issubclass(kind, numpy.number | numpy.bool_)}
)
"""What has no attributes, operators and items of a candidate's."""
_ASKED = frozenset(
    value.__code__
    for owner in (simple_registry, torch.nn.ParameterList)
    for value in vars(owner).values()
    if isinstance(value, types.FunctionType)
)
"""What torch calls to find out how a mode takes an operator, and what it reads a list of parameters with."""
_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})


def is_told_of(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value holds an object that could bring functions of Python or another library into C++."""
    kind = type(value)
    if kind in _PLAIN:
        return False
    if kind in _TENSORS:
        # Of attributes that somebody has given a tensor.
        value = object.__getattribute__(value, "__dict__")
    elif kind is torch.nn.ParameterList:
        value = vars(value)["_parameters"]
    elif kind not in (list, tuple, dict, set, frozenset):
        return True
    if isinstance(value, dict):
        value = [*value, *value.values()]
    return bool(value) and (depth == 0 or any(is_told_of(item, depth - 1) for item in value))


def begin(own: frozenset[types.CodeType]) -> Callable[[], bool]:
    """A function of an extension begins; to be called when it has ended, for whether it has called one of Python's.

    Args:
        own: what torch calls of this package, and what follows it.
    """
    found = False
    inside = 0
    passing = own | _ASKED
    before, collects = sys.getprofile(), gc.isenabled()

    def seen(frame: types.FrameType, event: str, _: Any) -> None:
        nonlocal found, inside
        if event == "call":
            if inside or frame.f_code in passing:
                inside += 1
            else:
                found = True
        elif event == "return" and inside:
            inside -= 1

    def end() -> bool:
        sys.setprofile(before)
        if collects:
            gc.enable()
        return found

    # Finalizers of what the collector finds belong to no call.
    gc.disable()
    sys.setprofile(seen)
    return end


_HOOKED = ("ctypes.dlsym", "ctypes.dlsym/handle")
_OWN = frozenset({"mallopt"})
"""What the runner looks up itself."""
_MOST_NAMES = 64
_names: dict[str, None] = {}


def look_up(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: takes note of the functions of libraries that are looked up by their names."""
    if event in _HOOKED and len(_names) < _MOST_NAMES and str(arguments[1]) not in _OWN:
        _names[str(arguments[1])[:_MOST_NAMES]] = None


def looked_up() -> list[str]:
    """Names of the functions that were looked up in this process since somebody takes note of it."""
    return [*_names]

"""Out-of-bounds stores, loads and gathers of interpreted kernels, and loads of undefined values.

On a GPU an out-of-bounds store is unnoticed where the allocator has padded the buffer, and otherwise overwrites other
data. In the interpreter it would overwrite memory of the process. Here it raises `IndexError` at the kernel's line. An
out-of-bounds load returns NaN, or an integer with all bits set, so that the output is wrong if it uses the value.

Pointers of a kernel come from the tensors of its launch or from integers. A launch is not checked if an integer among
its arguments, or in a tensor of them, could be an address.

A masked-off lane of a load without `other` is undefined on a device. Here it is NaN, +inf or -inf, or a large integer.
An index of `tl.gather` must be within the axis; NumPy would count negative ones from the end.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from triton.runtime import interpreter
from triton.runtime.jit import TensorWrapper

from kernelrl_judge.provenance import least_address

__all__ = ["install"]

_MOST_BYTES = 8 << 20
"""Maximum size of an int64 tensor that is searched for addresses; a larger one is assumed to contain some."""
_ONES = 0xFF
"""Byte that makes a NaN in every floating-point type."""
_LARGE = 0x50
"""Byte that makes a large integer which is still a multiple of 16."""
_WIDE = (torch.int64, torch.uint64)


@attrs.define
class _Launch:
    memory: set[tuple[int, int]] = attrs.field(factory=set)
    """Start and end address of each storage."""
    is_known: bool = True
    """Whether the programs can access no other memory."""


_launches: list[_Launch] = []


def install(values: Callable[[Any], Any]) -> None:
    """Check every store and load of this process from now on.

    Args:
        values: returns the array of an interpreter handle.
    """
    interpreter.GridExecutor.__call__ = _launched(interpreter.GridExecutor.__call__)
    interpreter._implicit_cvt = _recorded(interpreter._implicit_cvt)
    builder = interpreter.InterpreterBuilder
    for name, places in (
        ("create_masked_store", (0, 1, 2)),
        ("create_atomic_rmw", (1, 2, 3)),
        ("create_atomic_cas", (0, 2, None)),
    ):
        setattr(builder, name, _checked_store(getattr(builder, name), values, places))
    builder.create_masked_load = _load(builder.create_masked_load, values)
    builder.create_gather = _gather(builder.create_gather, values)


def _launched(call: Any) -> Any:
    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        numbers = (value for value in (*arguments, *named.values()) if isinstance(value, int | np.integer))
        _launches.append(_Launch(is_known=all(number < least_address() for number in numbers)))
        try:
            return call(self, *arguments, **named)
        finally:
            _launches.pop()

    return wrapper


def _recorded(convert: Any) -> Any:
    """Record the arguments of a launch."""

    @functools.wraps(convert)
    def wrapper(argument: Any) -> Any:
        if _launches:
            launch = _launches[-1]
            tensor = argument.base if isinstance(argument, TensorWrapper) else argument
            if isinstance(tensor, torch.Tensor):
                begin, end = _memory(tensor)
                launch.memory.add((begin, end))
                launch.is_known &= tensor.dtype not in _WIDE or not _has_addresses(begin, end)
            else:
                launch.is_known &= not hasattr(argument, "data_ptr")
        return convert(argument)

    return wrapper


def _memory(tensor: torch.Tensor) -> tuple[int, int]:
    # Without the candidate's torch functions: they must not observe this access.
    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _has_addresses(begin: int, end: int) -> bool:
    count = (end - begin) // 8
    if not count:
        return False
    if end - begin > _MOST_BYTES:
        return True
    numbers = np.frombuffer((ctypes.c_char * (8 * count)).from_address(begin), dtype=np.int64)
    return bool(numbers.max() >= least_address())


def _checked_store(store: Any, values: Callable[[Any], Any], places: tuple[int, int, int | None]) -> Any:
    """Wrap an operation that stores.

    Args:
        places: positions of pointers, values and mask among its arguments.
    """
    pointers, stored, masks = places

    @functools.wraps(store)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        if _launches and _launches[-1].is_known and not named:
            addresses, width = values(given[pointers]), values(given[stored]).dtype.itemsize
            memory = _launches[-1].memory
            low, high = int(addresses.min()), int(addresses.max()) + width
            # Fast path: the whole block is in one tensor, whatever its mask.
            if not any(begin <= low and high <= end for begin, end in memory):
                _check_store(memory, addresses, True if masks is None else values(given[masks]), width)
        return store(self, *given, **named)

    return wrapper


def _load(load: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(load)
    def wrapper(self: Any, pointers: Any, mask: Any, other: Any, *more: Any, **named: Any) -> Any:
        if other is None:
            kind = pointers.get_element_ty()
            other = interpreter.TensorHandle(_undefined(kind, values(pointers).shape), kind)
        if _launches and _launches[-1].is_known:
            addresses, bits = values(pointers), pointers.get_element_ty().primitive_bitwidth
            width = max(1, bits // 8)
            memory = _launches[-1].memory
            low, high = int(addresses.min()), int(addresses.max()) + width
            if not any(begin <= low and high <= end for begin, end in memory):
                outside = np.broadcast_to(values(mask), addresses.shape) & _outside(memory, addresses, width)
                if outside.any():
                    inside = interpreter.TensorHandle(values(mask) & ~outside, mask.dtype)
                    found = load(self, pointers, inside, other, *more, **named)
                    read = np.array(values(found))
                    read.reshape(-1).view(np.uint8).reshape(*outside.shape, -1)[outside] = 1 if bits == 1 else _ONES
                    return interpreter.TensorHandle(read, found.dtype)
        return load(self, pointers, mask, other, *more, **named)

    return wrapper


@functools.lru_cache(maxsize=32)
def _undefined(kind: Any, shape: tuple[int, ...]) -> Any:
    """Values of undefined lanes: NaN shows in a sum, +inf in a maximum, -inf in a minimum."""
    dtype = interpreter._get_np_dtype(kind)
    if dtype.kind == "f":
        return np.resize(np.array([np.nan, np.inf, -np.inf], dtype=dtype), shape)
    if kind.is_bf16():
        return np.resize(np.array([0x7FC0, 0x7F80, 0xFF80], dtype=dtype), shape)
    if dtype.kind == "b":
        return np.zeros(shape, dtype=dtype)
    filled = np.empty(shape, dtype=dtype)
    filled.reshape(-1).view(np.uint8)[:] = _ONES if kind.is_floating() else _LARGE
    return filled


def _gather(gather: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(gather)
    def wrapper(self: Any, source: Any, indices: Any, axis: int) -> Any:
        places, count = values(indices), values(source).shape[axis]
        outside = (places < 0) | (places >= count)
        if outside.any():
            raise IndexError(
                f"{int(outside.sum())} of {outside.size} indices of tl.gather are out of bounds for an axis of "
                f"{count} elements"
            )
        return gather(self, source, indices, axis)

    return wrapper


def _outside(memory: set[tuple[int, int]], pointers: Any, width: int) -> Any:
    """Boolean array: which pointers are outside of every storage."""
    addresses = np.asarray(pointers).astype(np.uint64)
    outside = np.ones(addresses.shape, dtype=bool)
    for begin, end in memory:
        outside &= (addresses < np.uint64(begin)) | (addresses + np.uint64(width) > np.uint64(end))
    return outside


def _check_store(memory: set[tuple[int, int]], pointers: Any, mask: Any, width: int) -> None:
    addresses, active = np.broadcast_arrays(pointers, np.asarray(mask, dtype=bool))
    outside = _outside(memory, addresses[active], width)
    if outside.any():
        raise IndexError(
            f"{int(outside.sum())} of {outside.size} elements are stored out of bounds of the tensors passed to "
            "this launch; mask the store"
        )

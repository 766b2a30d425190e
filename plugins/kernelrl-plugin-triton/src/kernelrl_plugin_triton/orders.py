"""Random execution order of a launch's programs, for calls in which the order must not matter.

A device starts programs in no defined order. A program that waits for one that has not been executed yet would wait for
ever in the interpreter. Such a launch is repeated in the interpreter's order.

In the same calls a reduction or a scan with a function of the kernel combines the two halves of the axis separately, as
a device combines the values of its threads. A function that is not associative then gives another result.
"""

from __future__ import annotations

import ctypes
import functools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
import torch
from triton.runtime import interpreter

from kernelrl_judge.listing import tensors_in
from kernelrl_judge.reordering import is_reordered

__all__ = ["install", "program"]

_MOST_BYTES = 64 << 20
"""Maximum memory of a launch: a copy is kept for a repetition."""
_MOST_LOOKS = 1000
"""Maximum reads of one address by one program; more count as waiting."""
_LEAST_GROUPED = 4
"""Minimum length of an axis that can be combined in more than one way."""
_SINGLE = {"create_masked_load": 0, "create_atomic_cas": 0, "create_atomic_rmw": 1}
"""Operations that read memory, and the position of their pointer argument. Polls and other loads use the first one."""


class _WaitsError(BaseException):
    """A program waits for another one. A BaseException, so that Triton does not catch it."""


@attrs.define
class _Launch:
    order: list[int]
    looks: Counter[int] = attrs.field(factory=Counter)
    """Scalar reads of the current program, by address."""


_launch: _Launch | None = None
_running = 0


def program() -> int:
    """Number of the current program, counted from 1 in execution order."""
    return _running


def install(values: Callable[[Any], Any], begin_anew: Callable[[], None]) -> None:
    """Patch the interpreter so that launches use a random order in calls that request it.

    Args:
        values: returns the array of an interpreter handle.
        begin_anew: called when a launch is repeated.
    """
    interpreter.ReduceOps.generic_reduce = _reducing(interpreter.ReduceOps.generic_reduce, values)
    interpreter.ScanOps.generic_scan = _scanning(interpreter.ScanOps.generic_scan, values)
    interpreter.GridExecutor.__call__ = _launched(interpreter.GridExecutor.__call__, begin_anew)
    builder = interpreter.InterpreterBuilder
    builder.set_grid_idx = _placed(builder.set_grid_idx)
    for name, place in _SINGLE.items():
        setattr(builder, name, _looking(getattr(builder, name), values, place))
    if hasattr(builder, "create_atomic_poll"):
        builder.create_atomic_poll = _polling(builder.create_atomic_poll)


def _launched(call: Any, begin_anew: Callable[[], None]) -> Any:
    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        global _launch
        count = int(np.prod(self.grid)) if isinstance(self.grid, tuple) else 0
        memory = _memory((arguments, named)) if is_reordered() and count > 1 else {}
        if not memory or sum(memory.values()) > _MOST_BYTES:
            return call(self, *arguments, **named)
        before = {address: ctypes.string_at(address, size) for address, size in memory.items()}
        _launch = _Launch(_shuffled(count))
        try:
            return call(self, *arguments, **named)
        except _WaitsError:
            _launch = None
            for address, held in before.items():
                ctypes.memmove(address, held, len(held))
            begin_anew()
            return call(self, *arguments, **named)
        finally:
            _launch = None

    return wrapper


def _shuffled(count: int) -> list[int]:
    """A random order that differs from the usual one."""
    order = [*range(count)]
    random.SystemRandom().shuffle(order)
    return order if order != sorted(order) else order[::-1]


def _memory(arguments: Any) -> dict[int, int]:
    """Address and size in bytes of each storage among the arguments."""
    with torch._C.DisableTorchFunction():
        storages = [tensor.untyped_storage() for tensor in tensors_in(arguments) if tensor.device.type == "cpu"]
        return {storage.data_ptr(): storage.nbytes() for storage in storages}


def _placed(place: Any) -> Any:
    @functools.wraps(place)
    def wrapper(self: Any, x: int, y: int, z: int) -> None:
        global _running
        _, rows, layers = map(int, self.grid_dim)
        number = (x * rows + y) * layers + z
        _running = 1 + number
        if _launch is not None:
            _launch.looks.clear()
            number, z = divmod(_launch.order[number], layers)
            x, y = divmod(number, rows)
        place(self, x, y, z)

    return wrapper


def _looking(operation: Any, values: Callable[[Any], Any], place: int) -> Any:
    @functools.wraps(operation)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        if _launch is not None and len(given) > place:
            places = values(given[place])
            if places.size == 1:
                address = int(places.flat[0])
                _launch.looks[address] += 1
                if _launch.looks[address] > _MOST_LOOKS:
                    raise _WaitsError
        return operation(self, *given, **named)

    return wrapper


def _polling(poll: Any) -> Any:
    @functools.wraps(poll)
    def wrapper(self: Any, ptr: Any, expected: Any, timeout_ns: Any, *more: Any) -> Any:
        # Without a timeout, Triton 3.9 passes its interpreter a value that is not None, and the second poll fails.
        waits = _launch is not None and not isinstance(timeout_ns, interpreter.TensorHandle)
        return poll(self, ptr, expected, None if waits else timeout_ns, *more)

    return wrapper


def _reducing(reduce: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(reduce)
    def wrapper(self: Any, given: Any) -> Any:
        data = [values(each.handle) for each in given]
        flat = self.axis is None
        axis = 0 if flat else self.axis
        if not is_reordered() or (data[0].size if flat else data[0].shape[axis]) < _LEAST_GROUPED:
            return reduce(self, given)
        data = [each.reshape(-1) for each in data] if flat else data
        both = [
            reduce(interpreter.ReduceOps(axis, self.combine_fn, True), _like(self, part, given))
            for part in _two_parts(data, axis)
        ]
        joined = [np.concatenate([values(part.handle) for part in parts], axis) for parts in zip(*both, strict=True)]
        return reduce(self, _like(self, joined, given))

    return wrapper


def _scanning(scan: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(scan)
    def wrapper(self: Any, given: Any) -> Any:
        data = [values(each.handle) for each in given]
        if not is_reordered() or data[0].shape[self.axis] < _LEAST_GROUPED:
            return scan(self, given)
        first, second = (
            [values(each.handle) for each in scan(self, _like(self, part, given))]
            for part in _two_parts(data, self.axis)
        )
        # Combine the last element of the first half with each element of the second.
        pairs = [
            np.stack([np.broadcast_to(np.take(before, [-1], self.axis), after.shape), after], -1)
            for before, after in zip(first, second, strict=True)
        ]
        combine = interpreter.ReduceOps(data[0].ndim, self.combine_fn, False)
        second = [values(each.handle) for each in combine.generic_reduce(_like(self, pairs, given))]
        return list(_like(self, [np.concatenate(both, self.axis) for both in zip(first, second, strict=True)], given))

    return wrapper


def _two_parts(data: list[Any], axis: int) -> list[list[Any]]:
    """Halves of arrays: the interpreter supports only blocks whose size is a power of two."""
    return [list(part) for part in zip(*(np.split(each, 2, axis) for each in data), strict=True)]


def _like(operation: Any, data: list[Any], given: Any) -> tuple[Any, ...]:
    return tuple(operation.to_tensor(each, tensor.dtype) for each, tensor in zip(data, given, strict=True))

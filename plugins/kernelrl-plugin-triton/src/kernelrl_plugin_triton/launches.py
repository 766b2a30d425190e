"""Memory and order of interpreted launches.

Bounds. A store outside of the tensors of the launch raises `IndexError` at the kernel's line; a GPU may not notice it.
A load outside of them returns NaN, or an integer with all bits set, so that the output is wrong if it uses the value.
Pointers come from the tensors of the launch or from integers: nothing is checked if an integer among the arguments, or
in a tensor of them, could be an address. An index of `tl.gather` must be within the axis; NumPy would count negative
ones from the end.

Order. A device executes programs concurrently, in no defined order. In the calls that request it, programs are executed
in a random order. A program that waits for a later one would wait for ever; such a launch is repeated in the usual
order. In the same calls a value that another program has stored is poisoned when it is loaded, until the launch makes
its first atomic operation: nothing else orders memory accesses of different programs.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import operator
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import torch
from triton.runtime import interpreter

from kernelrl_judge.runner.reordering import is_reordered

__all__ = ["install"]

_MAPS = Path("/proc/self/maps")
_MOST_SEARCHED_BYTES = 8 << 20
"""Maximum size of an int64 tensor that is searched for addresses; a larger one is assumed to contain some."""
_MOST_REORDERED_BYTES = 32 << 20
"""Maximum memory of a launch in random order: a copy is kept for a repetition."""
_MOST_LOOKS = 1000
"""Maximum reads of one address by one program; more count as waiting."""
_POISON = 0xFF
"""Byte that makes a NaN in every floating-point type."""
_POISON_OF_OTHERS = 0xFE
"""Lowest byte of a NaN in place of a value that another program has stored, by which the judge recognises a race."""
_ATOMIC = {
    "create_atomic_cas": (0, 2, None),
    "create_atomic_rmw": (1, 2, 3),
    "create_atomic_load": (0, None, None),
    "create_atomic_store": (0, None, None),
    "create_atomic_poll": (0, None, None),
}
"""Atomic operations, and the positions of pointers, stored values and mask among their arguments."""


class _WaitsError(BaseException):
    """A program waits for another one. A BaseException, so that Triton does not catch it."""


@attrs.define
class _Launch:
    memory: dict[int, int]
    """Address of each storage among the arguments, and its size in bytes."""
    is_known: bool
    """Whether the programs can access no other memory."""
    order: Sequence[int] = ()
    """Numbers of the programs in the order of execution; empty: the usual order."""
    writers: dict[int, Any] = attrs.field(factory=dict)
    """Storage -> per byte, the program that stored the element there; 0: none. Empty once programs are ordered."""
    program: int = 0
    """The current program, counted from 1 in the order of execution."""
    looks: Counter[int] = attrs.field(factory=Counter)
    """Scalar reads of the current program, by address."""

    def storage(self, places: Any, width: int) -> int | None:
        """Address of the storage that contains all elements."""
        low, high = int(places.min()), int(places.max()) + width
        return next((begin for begin, size in self.memory.items() if begin <= low and high <= begin + size), None)

    def outside(self, places: Any, active: Any, width: int) -> Any:
        """Which active elements are outside of every storage; None if none is."""
        if not self.is_known or self.storage(places, width) is not None:
            return None
        found = np.array(active)
        for begin, size in self.memory.items():
            found &= (places < np.uint64(begin)) | (places + np.uint64(width) > np.uint64(begin + size))
        return found if found.any() else None

    def refuse_outside(self, places: Any, active: Any, width: int) -> None:
        outside = self.outside(places, active, width)
        if outside is not None:
            raise IndexError(
                f"{int(outside.sum())} of {outside.size} elements are stored out of bounds of the tensors passed to "
                "this launch; mask the store"
            )

    def look(self, places: Any) -> None:
        """Count the reads of one address."""
        if self.order and places.size == 1:
            self.looks[int(places.flat[0])] += 1
            if self.looks[int(places.flat[0])] > _MOST_LOOKS:
                raise _WaitsError

    def stored(self, places: Any, width: int) -> tuple[Any, Any, Any] | None:
        """Writers of the elements' storage, the elements' offsets there, and the memory; None if they are unknown."""
        begin = self.storage(places, width) if self.writers and places.size else None
        if begin is None:
            return None
        memory = np.frombuffer((ctypes.c_char * self.memory[begin]).from_address(begin), dtype=np.uint8)
        return self.writers[begin], (places - np.uint64(begin)).astype(np.int64), memory


_launch = _Launch({}, is_known=False)


def install() -> None:
    """Check and reorder every launch of this process from now on."""
    interpreter.GridExecutor.__call__ = _launched(interpreter.GridExecutor.__call__)
    builder = interpreter.InterpreterBuilder
    builder.set_grid_idx = _placed(builder.set_grid_idx)
    builder.create_masked_load = _loaded(builder.create_masked_load)
    builder.create_masked_store = _stored(builder.create_masked_store)
    builder.create_gather = _gathered(builder.create_gather)
    for name, positions in _ATOMIC.items():
        # Some are new in later versions of Triton.
        if hasattr(builder, name):
            setattr(builder, name, _atomic(getattr(builder, name), *positions))


def _launched(call: Any) -> Any:
    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        global _launch
        if callable(self.grid):
            parameters = inspect.signature(self.fn).parameters
            given = {name: value for name, value in named.items() if name in parameters}
            self.grid = self.grid({**named, **inspect.getcallargs(self.fn, *arguments, **given)})
        self.grid = tuple(map(operator.index, self.grid))
        around, _launch = _launch, _new_launch([*arguments, *named.values()])
        try:
            return _reordered(call, self, arguments, named)
        finally:
            _launch = around

    return wrapper


def _new_launch(arguments: Sequence[Any]) -> _Launch:
    with torch._C.DisableTorchFunction():
        tensors = [tensor for tensor in _tensors(arguments) if tensor.device.type == "cpu"]
        storages = [(tensor.untyped_storage(), tensor.dtype) for tensor in tensors]
        memory = {storage.data_ptr(): storage.nbytes() for storage, _ in storages}
    least = _least_address()
    wide = {storage.data_ptr() for storage, dtype in storages if dtype in (torch.int64, torch.uint64)}
    is_known = not any(isinstance(number, int | np.integer) and number >= least for number in arguments)
    return _Launch(memory, is_known and not any(_has_address(begin, memory[begin], least) for begin in wide))


def _least_address() -> int:
    """A number below it is the address of no tensor.

    A program at a fixed address has its heap behind it, far below everything else.
    """
    heaps = [line for line in _MAPS.read_text().splitlines() if line.endswith("[heap]")] if _MAPS.exists() else []
    return min([1 << 32, *(int(line.partition("-")[0], 16) for line in heaps)])


def _tensors(value: Any) -> Iterator[Any]:
    """Tensors in lists, dictionaries and what wraps a tensor."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(base := getattr(value, "base", None), torch.Tensor):
        # Triton's descriptors and wrappers of tensors.
        yield base


def _has_address(begin: int, size: int, least: int) -> bool:
    if size > _MOST_SEARCHED_BYTES:
        return True
    numbers = (ctypes.c_int64 * (size // 8)).from_address(begin)
    return bool((np.asarray(numbers, dtype=np.int64) >= least).any())


def _reordered(call: Any, self: Any, arguments: Any, named: Any) -> Any:
    memory, count = _launch.memory, int(np.prod(self.grid))
    if not is_reordered() or count < 2 or sum(memory.values()) > _MOST_REORDERED_BYTES:
        return call(self, *arguments, **named)
    order = [*range(count)]
    random.SystemRandom().shuffle(order)
    _launch.order = order if order != sorted(order) else order[::-1]
    _launch.writers = {begin: np.zeros(size, dtype=np.int32) for begin, size in memory.items()}
    before = {begin: ctypes.string_at(begin, size) for begin, size in memory.items()}
    try:
        return call(self, *arguments, **named)
    except _WaitsError:
        _launch.order, _launch.writers = (), {}
        for begin, held in before.items():
            ctypes.memmove(begin, held, len(held))
        return call(self, *arguments, **named)


def _placed(place: Any) -> Any:
    @functools.wraps(place)
    def wrapper(self: Any, x: int, y: int, z: int) -> None:
        if _launch.order:
            _, rows, layers = map(int, self.grid_dim)
            number = (x * rows + y) * layers + z
            _launch.program = number + 1
            _launch.looks.clear()
            number, z = divmod(_launch.order[number], layers)
            x, y = divmod(number, rows)
        place(self, x, y, z)

    return wrapper


def _loaded(load: Any) -> Any:
    @functools.wraps(load)
    def wrapper(self: Any, pointers: Any, mask: Any, *more: Any, **named: Any) -> Any:
        places, active = pointers.data, _active(pointers, mask)
        width = _width(pointers)
        _launch.look(places)
        outside = _launch.outside(places, active, width)
        if outside is not None:
            inside = interpreter.TensorHandle(active & ~outside, mask.dtype)
            return _poisoned(load(self, pointers, inside, *more, **named), outside)
        found = load(self, pointers, mask, *more, **named)
        stored = _launch.stored(places[active], width)
        if stored is None:
            return found
        writers = stored[0][stored[1]]
        others = np.zeros_like(active)
        others[active] = (writers != 0) & (writers != _launch.program)
        return _poisoned(found, others, lowest=_POISON_OF_OTHERS) if others.any() else found

    return wrapper


def _poisoned(found: Any, where: Any, lowest: int = _POISON) -> Any:
    """Loaded values with poison in some places.

    Args:
        lowest: lowest byte of the poison of numbers that are at least four bytes wide.
    """
    read = np.array(found.data)
    elements = read.reshape(-1).view(np.uint8).reshape(*where.shape, -1)
    elements[where] = 1 if read.dtype.kind == "b" else _POISON
    if read.dtype.itemsize >= 4:
        elements[where, 0] = lowest
    return interpreter.TensorHandle(read, found.dtype)


def _stored(store: Any) -> Any:
    """Check a store, and record its program. Storing the value that is there already counts as no store."""

    @functools.wraps(store)
    def wrapper(self: Any, pointers: Any, value: Any, mask: Any, *more: Any, **named: Any) -> Any:
        active, width = _active(pointers, mask), _width(pointers)
        _launch.refuse_outside(pointers.data, active, width)
        stored = _launch.stored(pointers.data[active], width)
        if stored is None:
            return store(self, pointers, value, mask, *more, **named)
        writers, places, memory = stored
        bytes_ = places[:, None] + np.arange(width)
        before = memory[bytes_]
        made = store(self, pointers, value, mask, *more, **named)
        changed = (before != memory[bytes_]).any(axis=1) | (writers[places] != 0)
        writers[places[changed]] = _launch.program
        return made

    return wrapper


def _width(pointers: Any) -> int:
    """Size in bytes of the elements in memory."""
    return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)


def _active(pointers: Any, mask: Any) -> Any:
    return np.broadcast_to(mask.data, pointers.data.shape).astype(bool)


def _atomic(operation: Any, pointers: int, values: int | None, mask: int | None) -> Any:
    @functools.wraps(operation)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        places = given[pointers].data
        _launch.writers = {}
        _launch.look(places)
        if values is not None:
            active = np.ones(places.shape, dtype=bool) if mask is None else _active(given[pointers], given[mask])
            _launch.refuse_outside(places, active, _width(given[pointers]))
        return operation(self, *given, **named)

    return wrapper


def _gathered(gather: Any) -> Any:
    @functools.wraps(gather)
    def wrapper(self: Any, source: Any, indices: Any, axis: int) -> Any:
        places, count = indices.data, source.data.shape[axis]
        outside = (places < 0) | (places >= count)
        if outside.any():
            raise IndexError(
                f"{int(outside.sum())} of {outside.size} indices of tl.gather are out of bounds for an axis of "
                f"{count} elements"
            )
        return gather(self, source, indices, axis)

    return wrapper

"""Detect data races of interpreted kernels, between the programs of a launch and between the threads of a program.

Racy kernels give correct outputs in Triton's interpreter, which executes one program after another, and each program as
a whole. On a device programs are concurrent and their order is undefined.

- Read and write: a program that reads an element that another one stores may or may not see the value. There is no
  race if the writer releases afterwards and the reader acquires before, by atomic operations on the same memory (a
  lock, or a counter of finished programs).
- Write and write: of two values stored at one address, by two programs or by one store, either may remain.
- Threads: a thread may not see the stores of another thread of its program until both pass a barrier, a reduction, a
  scan or a product.

For each plain store that changes an element the last writer and the time are recorded. Loads are recorded until the end
of the launch. Both also cover memory that a launch reaches through an integer address.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import numpy as np
import torch
from triton.runtime import interpreter

from kernelrl_judge import provenance
from kernelrl_judge.listing import tensors_in
from kernelrl_plugin_triton import orders

__all__ = ["Launch", "begin_anew", "install"]

_MOST_ELEMENTS = 1 << 24
"""Maximum number of elements in a tensor that is observed."""
_MOST_LOADED = 1 << 22
"""Maximum number of loaded elements that are recorded."""
_PART_BITS = 22
"""log2 of the bytes per part into which memory outside of the launch's tensors is divided."""
_LANE_BITS = 5
_NEVER = 1 << 62
_ATOMIC = {"create_atomic_cas": None, "create_atomic_rmw": 3, "create_atomic_load": 1, "create_atomic_store": 2}
_ATOMIC |= {"create_atomic_poll": None}
"""Atomic operations, and the position of their mask argument."""
_UNORDERED = frozenset({"RELAXED", "CTA"})
"""Semantics and scopes of atomic operations that do not order the memory accesses of different programs."""
_BARRIERS = ("create_barrier", "create_dot", "create_dot_scaled")
"""Operations at which the threads of a program synchronise."""


@attrs.define
class _Written:
    begin: int
    end: int
    shift: int
    """log2 of the bytes per element."""
    writers: Any
    """Per element: number of the program that stored it last; 0: none."""
    changers: Any
    """Per element: number of the program that changed it last."""
    times: Any
    """Per element: time of that change."""
    lanes: Any
    """Per element: its position in the stored block, and the size of the block."""

    def at(self, places: Any) -> Any:
        return (places - np.uint64(self.begin)) >> np.uint64(self.shift)


@attrs.define
class _AtomicAccesses:
    """Atomic operations of one program, by address range: times of the first acquiring and the last releasing one."""

    times: dict[tuple[int, int], tuple[int, int]] = attrs.field(factory=dict)

    def add(self, least: int, most: int, time: int, kinds: set[str]) -> None:
        first, last = self.times.get((least, most), (_NEVER, 0))
        if "RELEASE" not in kinds:
            first = min(first, time)
        self.times[least, most] = (first, last if "ACQUIRE" in kinds else time)

    def common(self, other: _AtomicAccesses) -> list[tuple[int, int]]:
        """For operations on the same memory: the other program's first and this program's last one."""
        return [
            (their_first, own_last)
            for (begin, end), (_, own_last) in self.times.items()
            for (their_begin, their_end), (their_first, _) in other.times.items()
            if begin <= their_end and their_begin <= end and their_first < _NEVER
        ]


class Launch:
    """Memory accesses of one launch.

    Args:
        tensors: arguments of the launch.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.raced = 0
        """Number of elements with a race."""
        self._memory: dict[int, int] = {}
        with torch._C.DisableTorchFunction():
            for storage in (tensor.untyped_storage() for tensor in tensors):
                self._memory[storage.data_ptr()] = storage.nbytes()
        self._written: dict[tuple[int, int, bool], _Written] = {}
        self._atomics: dict[int, _AtomicAccesses] = {}
        self._time = 0
        self._last_barrier = 0
        """Time at which the threads of the current program last synchronised."""
        self._loads: list[tuple[int, int, Any, Any]] = []
        self._loaded = 0

    def again(self) -> Launch:
        """A new launch with the same arguments and no recorded accesses."""
        launch = Launch(())
        launch._memory = self._memory
        return launch

    def atomic(self, program: int, places: Any, mask: Any, kinds: set[str]) -> None:
        """Record an atomic operation of a program, counted from 1.

        Args:
            kinds: Triton's names of the semantics and the scope.
        """
        self._time += 1
        self._last_barrier = self._time
        places = _chosen(places, mask)
        if places.size and not kinds & _UNORDERED:
            self._atomics.setdefault(program, _AtomicAccesses()).add(
                int(places.min()), int(places.max()), self._time, kinds
            )

    def threads_synchronised(self) -> None:
        """Record that the threads of the current program synchronise."""
        self._time += 1
        self._last_barrier = self._time

    def stored(self, program: int, places: Any, before: Any, values: Any, lanes: Any) -> None:
        """Record a store. All arrays have one dimension: addresses, old and new values, and the result of `_lanes`."""
        self._time += 1
        for part in self._parts(places):
            self._stored(program, *(each if part is None else each[part] for each in (places, before, values, lanes)))

    def _stored(self, program: int, places: Any, before: Any, values: Any, lanes: Any) -> None:
        written = self._at(places, values.itemsize)
        if written is None:
            return
        at = written.at(places)
        bits = np.dtype(f"u{values.itemsize}")
        changed = before.view(bits) != values.view(bits)
        writers = written.writers[at]
        for other in np.unique(writers[changed]) if writers.any() else ():
            if other not in (0, program):
                theirs = changed & (writers == other)
                self.raced += int((theirs & (written.times[at] >= self._last_synchronisation(other, program))).sum())
        # A program that stores the value that is already there becomes its writer, so that it may read the element.
        written.writers[at[changed | (writers != 0)]] = program
        at = at[changed]
        written.changers[at] = program
        written.times[at] = self._time
        written.lanes[at] = lanes[changed]

    def loaded(self, program: int, places: Any, mask: Any) -> None:
        """Record a load at the addresses that the mask selects."""
        self._loaded += np.size(places)
        if self._loaded <= _MOST_LOADED:
            self._loads.append((program, self._time, places, mask))
        if not self._written:
            return
        chosen = _chosen(places, mask)
        for part in self._parts(chosen):
            self._loaded_after(program, chosen if part is None else chosen[part], mask, part)

    def _loaded_after(self, program: int, places: Any, mask: Any, part: Any) -> None:
        written = self._holding(places)
        if written is None:
            return
        at = written.at(places)
        writers = written.writers[at]
        for other in np.unique(writers):
            theirs = writers == other
            if other == program:
                mine = theirs & (written.changers[at] == program) & (written.times[at] > self._last_barrier)
                if mine.any():
                    lanes = _lanes(mask) if part is None else _lanes(mask)[part]
                    self.raced += int((mine & (written.lanes[at] != lanes)).sum())
            elif other:
                self.raced += int((theirs & (written.times[at] >= self._last_synchronisation(other, program))).sum())

    def _last_synchronisation(self, other: int, program: int) -> int:
        """Time of the other program's last operation on memory on which this program has also operated: the other one's
        earlier stores are visible to this program."""
        accesses = (
            self._atomics[other].common(self._atomics[program]) if {other, program} <= self._atomics.keys() else []
        )
        return max((last for _, last in accesses), default=0)

    def ended(self) -> None:
        """Count the loads that came before another program's store to the same element."""
        for program, time, places, mask in self._loads if self._written else ():
            # Fast path: most loads are outside of all memory that was stored to.
            ends = np.ravel(places)[[0, -1]]
            if not any(written.begin <= end < written.end for written in self._written.values() for end in ends):
                continue
            chosen = _chosen(places, mask)
            for part in self._parts(chosen):
                self._loaded_before(program, time, chosen if part is None else chosen[part])
        self._loads.clear()

    def _loaded_before(self, program: int, time: int, places: Any) -> None:
        written = self._holding(places)
        if written is None:
            return
        at = written.at(places)
        changers = written.changers[at]
        for other in np.unique(changers[changers > program]):
            theirs = changers == other
            if {other, program} <= self._atomics.keys():
                accesses = self._atomics[program].common(self._atomics[other])
                first = min((first for first, last in accesses if last > time), default=self._time + 1)
                theirs &= written.times[at] < first
            self.raced += int(theirs.sum())

    def _parts(self, places: Any) -> Iterable[Any]:
        """Masks that group addresses by tensor, or by part of other memory; (None,) if all are in one tensor."""
        if not places.size:
            return ()
        least, most = int(places.min()), int(places.max())
        if any(begin <= least and most < begin + size for begin, size in self._memory.items()):
            return (None,)
        numbers = places >> np.uint64(_PART_BITS)
        for begin, size in self._memory.items():
            numbers[(places >= np.uint64(begin)) & (places < np.uint64(begin + size))] = begin
        return [numbers == number for number in np.unique(numbers)]

    def _memory_of(self, place: int) -> tuple[int, int, bool]:
        """Start, size in bytes and kind (True: tensor) of the tensor or memory part that contains an address."""
        for begin, size in self._memory.items():
            if begin <= place < begin + size:
                return begin, size, True
        return place >> _PART_BITS << _PART_BITS, 1 << _PART_BITS, False

    def _holding(self, places: Any) -> _Written | None:
        """The record of the memory that contains the addresses; None if nothing was stored there."""
        return self._written.get(self._memory_of(int(places[0])))

    def _at(self, places: Any, itemsize: int) -> _Written | None:
        found = begin, size, _ = self._memory_of(int(places[0]))
        if size // itemsize > _MOST_ELEMENTS:
            return None
        if found not in self._written:
            shift = itemsize.bit_length() - 1
            numbers = [np.zeros((size >> shift) + 1, dtype=np.int32) for _ in range(4)]
            self._written[found] = _Written(begin, begin + size, shift, *numbers)
        return self._written[found]


def _chosen(places: Any, mask: Any) -> Any:
    """Addresses that the mask selects, in one dimension."""
    places, mask = np.broadcast_arrays(np.atleast_1d(places), np.atleast_1d(mask))
    return places[mask.astype(bool)]


def _lanes(mask: Any) -> Any:
    """Per selected element of a block: its position and the size of the block. In blocks of equal size, one thread has
    equal positions."""
    return np.flatnonzero(mask) << _LANE_BITS | np.size(mask).bit_length()


_launch: Launch | None = None


def begin_anew() -> None:
    """Discard the accesses of the current launch, which is repeated."""
    global _launch
    if _launch is not None:
        _launch = _launch.again()


def install(values: Callable[[Any], Any]) -> None:
    """Observe every launch of this process from now on if provenance is recorded.

    Args:
        values: returns the array of an interpreter handle.
    """
    interpreter.GridExecutor.__call__ = _observed(interpreter.GridExecutor.__call__)
    interpreter.ReduceScanOpInterface.apply = _barrier(interpreter.ReduceScanOpInterface.apply)
    builder = interpreter.InterpreterBuilder
    hooks: dict[str, Any] = {"create_masked_load": _loading, "create_masked_store": _storing}
    hooks |= {name: functools.partial(_atomic_operation, mask=mask) for name, mask in _ATOMIC.items()}
    for name, wrapped in hooks.items():
        if hasattr(builder, name):
            setattr(builder, name, wrapped(getattr(builder, name), values))
    for name in _BARRIERS:
        if hasattr(builder, name):
            setattr(builder, name, _barrier(getattr(builder, name)))


def _observed(call: Any) -> Any:
    """Report the arguments of a launch and its races to the provenance record."""

    @functools.wraps(call)
    def wrapper(self: Any, *arguments: Any, **named: Any) -> Any:
        global _launch
        with provenance.launch((arguments, named)) as watch:
            if watch is None:
                return call(self, *arguments, **named)
            _launch = Launch(tensors_in((arguments, named)))
            try:
                return call(self, *arguments, **named)
            finally:
                _launch.ended()
                watch.raced += _launch.raced
                _launch = None

    return wrapper


def _loading(load: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(load)
    def wrapper(self: Any, ptrs: Any, mask: Any, *more: Any, **named: Any) -> Any:
        if _launch is not None:
            _launch.loaded(orders.program(), values(ptrs), values(mask))
        return load(self, ptrs, mask, *more, **named)

    return wrapper


def _storing(store: Any, values: Callable[[Any], Any]) -> Any:
    @functools.wraps(store)
    def wrapper(self: Any, ptrs: Any, value: Any, mask: Any, *more: Any, **named: Any) -> Any:
        if _launch is not None:
            given = np.broadcast_arrays(*(np.atleast_1d(values(handle)) for handle in (ptrs, value, mask)))
            active = given[2].astype(bool)
            places, new = given[0][active], given[1][active]
            before = _memory_at(places, new)
            result = store(self, ptrs, value, mask, *more, **named)
            if places.size > 1:
                bits = np.dtype(f"u{new.itemsize}")
                _launch.raced += int((_memory_at(places, new).view(bits) != new.view(bits)).sum())
            _launch.stored(orders.program(), places, before, new, _lanes(active))
            return result
        return store(self, ptrs, value, mask, *more, **named)

    return wrapper


def _memory_at(places: Any, like: Any) -> Any:
    """Values at the addresses, with the dtype of `like`."""
    return interpreter._interpreter.load(places, np.ones(places.shape, dtype=bool), like, like.dtype)


def _atomic_operation(operation: Any, values: Callable[[Any], Any], *, mask: int | None) -> Any:
    place = 1 if operation.__name__ == "create_atomic_rmw" else 0

    @functools.wraps(operation)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        global _launch
        launch, _launch = _launch, None
        try:
            result = operation(self, *given, **named)
        finally:
            _launch = launch
        if launch is not None:
            kinds = {str(getattr(value, "name", "")) for value in (*given, *named.values())}
            launch.atomic(orders.program(), values(given[place]), True if mask is None else values(given[mask]), kinds)
        return result

    return wrapper


def _barrier(operation: Any) -> Any:
    @functools.wraps(operation)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        if _launch is not None:
            _launch.threads_synchronised()
        return operation(self, *given, **named)

    return wrapper

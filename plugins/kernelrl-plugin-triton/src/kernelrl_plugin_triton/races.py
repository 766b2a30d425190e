"""Programs of a launch, and threads of a program, that read what others wrote or are yet to write, or write something
else in the same place: right in Triton's interpreter, which runs one after another and a program as a whole.

On a device programs run at the same time, in any order. Who reads there what another program stores may find it or
not, whichever of them comes first here, unless the first has made an atomic operation that releases afterwards, and the
other one that acquires before, on the same memory (a lock, or a counter of those that are done). Of what two programs
store in one place, or two elements of one store, either may stay. So do threads of one program race: what one has
stored, another may not find before they have met at a barrier, or in a sum, a scan or a product. Which program stored
an element last, and when, is written down at each plain store that changes it, and each load until the launch ends,
also in memory that a launch reaches by an address alone.
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
"""Of memory that is looked at."""
_MOST_LOADED = 1 << 22
"""Elements of the loads that are remembered."""
_PART_BITS = 22
"""Two to the power of this are the bytes of a part of the memory that belongs to no tensor of the launch."""
_LANE_BITS = 5
_NEVER = 1 << 62
_ATOMIC = {"create_atomic_cas": None, "create_atomic_rmw": 3, "create_atomic_load": 1, "create_atomic_store": 2}
_ATOMIC |= {"create_atomic_poll": None}
"""Atomic operations, and where their masks stand."""
_NEITHER = frozenset({"RELAXED", "CTA"})
"""Operations that order nothing among programs, by their semantics or scope."""
_TOGETHER = ("create_barrier", "create_dot", "create_dot_scaled")
"""Where the threads of a program wait for each other."""


@attrs.define
class _Written:
    begin: int
    end: int
    shift: int
    """An element has two to the power of this bytes."""
    writers: Any
    """Of each element the number of the program that stored it last; 0 for none."""
    changers: Any
    """Of the program that changed it last."""
    times: Any
    """When that was."""
    lanes: Any
    """Where it stood in the block that was stored then, and how large that was."""

    def at(self, places: Any) -> Any:
        return (places - np.uint64(self.begin)) >> np.uint64(self.shift)


@attrs.define
class _Met:
    """Atomic operations of a program, by the memory that they were made on: when the first acquired and the last
    released what others, or this one, had stored."""

    times: dict[tuple[int, int], tuple[int, int]] = attrs.field(factory=dict)

    def add(self, least: int, most: int, time: int, kinds: set[str]) -> None:
        first, last = self.times.get((least, most), (_NEVER, 0))
        if "RELEASE" not in kinds:
            first = min(first, time)
        self.times[least, most] = (first, last if "ACQUIRE" in kinds else time)

    def common(self, other: _Met) -> list[tuple[int, int]]:
        """Of operations on the same memory, the first of the other and the last of this program."""
        return [
            (their_first, own_last)
            for (begin, end), (_, own_last) in self.times.items()
            for (their_begin, their_end), (their_first, _) in other.times.items()
            if begin <= their_end and their_begin <= end and their_first < _NEVER
        ]


class Launch:
    """What the programs of one launch did so far.

    Args:
        tensors: that it was given.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self.raced = 0
        """Elements that a program, or a thread, has read, and that another had written or was to write, and those in
        which two have written something else."""
        self._memory: dict[int, int] = {}
        with torch._C.DisableTorchFunction():
            for storage in (tensor.untyped_storage() for tensor in tensors):
                self._memory[storage.data_ptr()] = storage.nbytes()
        self._written: dict[tuple[int, int, bool], _Written] = {}
        self._met: dict[int, _Met] = {}
        self._time = 0
        self._together = 0
        """When the threads of the program that runs met last."""
        self._loads: list[tuple[int, int, Any, Any]] = []
        self._loaded = 0

    def again(self) -> Launch:
        """A launch that was given the same, of which nothing is known yet."""
        launch = Launch(())
        launch._memory = self._memory
        return launch

    def met(self, program: int, places: Any, mask: Any, kinds: set[str]) -> None:
        """A program, counted from 1, makes an atomic operation on places, as far as a mask has it.

        Args:
            kinds: Triton's names of its semantics and scope.
        """
        self._time += 1
        self._together = self._time
        places = _chosen(places, mask)
        if places.size and not kinds & _NEITHER:
            self._met.setdefault(program, _Met()).add(int(places.min()), int(places.max()), self._time, kinds)

    def threads_met(self) -> None:
        """Those of a program wait for each other."""
        self._time += 1
        self._together = self._time

    def stored(self, program: int, places: Any, before: Any, values: Any, lanes: Any) -> None:
        """A program stores values where others were before, all of one dimension, from where `_lanes` says."""
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
                self.raced += int((theirs & (written.times[at] >= self._met_last(other, program))).sum())
        # Who stores what is there already may read it.
        written.writers[at[changed | (writers != 0)]] = program
        at = at[changed]
        written.changers[at] = program
        written.times[at] = self._time
        written.lanes[at] = lanes[changed]

    def loaded(self, program: int, places: Any, mask: Any) -> None:
        """A program loads from places, as far as a mask has it."""
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
                mine = theirs & (written.changers[at] == program) & (written.times[at] > self._together)
                if mine.any():
                    lanes = _lanes(mask) if part is None else _lanes(mask)[part]
                    self.raced += int((mine & (written.lanes[at] != lanes)).sum())
            elif other:
                self.raced += int((theirs & (written.times[at] >= self._met_last(other, program))).sum())

    def _met_last(self, other: int, program: int) -> int:
        """When another program made its last operation on memory on which this one has made one: its stores before
        it are known here."""
        meetings = self._met[other].common(self._met[program]) if {other, program} <= self._met.keys() else []
        return max((last for _, last in meetings), default=0)

    def ended(self) -> None:
        """All programs have run: what was loaded before another program stored there counts, too."""
        for program, time, places, mask in self._loads if self._written else ():
            # Programs that store nowhere but in what others do not read are most.
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
            if {other, program} <= self._met.keys():
                meetings = self._met[program].common(self._met[other])
                first = min((first for first, last in meetings if last > time), default=self._time + 1)
                theirs &= written.times[at] < first
            self.raced += int(theirs.sum())

    def _parts(self, places: Any) -> Iterable[Any]:
        """Which of the places lie in the same tensor, or part of other memory, of each; None: all of them do."""
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
        """Where the tensor, or the part of other memory, begins in which a place lies, its bytes, and which it is."""
        for begin, size in self._memory.items():
            if begin <= place < begin + size:
                return begin, size, True
        return place >> _PART_BITS << _PART_BITS, 1 << _PART_BITS, False

    def _holding(self, places: Any) -> _Written | None:
        """What is known of the one memory that places lie in, if something was stored there."""
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
    """Places that a mask leaves, of one dimension."""
    places, mask = np.broadcast_arrays(np.atleast_1d(places), np.atleast_1d(mask))
    return places[mask.astype(bool)]


def _lanes(mask: Any) -> Any:
    """Of the elements of a block that a mask leaves, their places in it, and how large it is: the thread that has one
    has it in any block of that size."""
    return np.flatnonzero(mask) << _LANE_BITS | np.size(mask).bit_length()


_launch: Launch | None = None


def begin_anew() -> None:
    """The launch that goes on begins once more."""
    global _launch
    if _launch is not None:
        _launch = _launch.again()


def install(values: Callable[[Any], Any]) -> None:
    """Look at every launch of this process from now on, while somebody watches.

    Args:
        values: what lies behind a handle of the interpreter.
    """
    interpreter.GridExecutor.__call__ = _told(interpreter.GridExecutor.__call__)
    interpreter.ReduceScanOpInterface.apply = _together(interpreter.ReduceScanOpInterface.apply)
    builder = interpreter.InterpreterBuilder
    hooks: dict[str, Any] = {"create_masked_load": _loading, "create_masked_store": _storing}
    hooks |= {name: functools.partial(_meeting, mask=mask) for name, mask in _ATOMIC.items()}
    for name, wrapped in hooks.items():
        if hasattr(builder, name):
            setattr(builder, name, wrapped(getattr(builder, name), values))
    for name in _TOGETHER:
        if hasattr(builder, name):
            setattr(builder, name, _together(getattr(builder, name)))


def _told(call: Any) -> Any:
    """What a launch is given and may write is known to who watches, and what its programs read of each other's."""

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
            before = _now(places, new)
            result = store(self, ptrs, value, mask, *more, **named)
            if places.size > 1:
                bits = np.dtype(f"u{new.itemsize}")
                _launch.raced += int((_now(places, new).view(bits) != new.view(bits)).sum())
            _launch.stored(orders.program(), places, before, new, _lanes(active))
            return result
        return store(self, ptrs, value, mask, *more, **named)

    return wrapper


def _now(places: Any, like: Any) -> Any:
    """What lies at places."""
    return interpreter._interpreter.load(places, np.ones(places.shape, dtype=bool), like, like.dtype)


def _meeting(operation: Any, values: Callable[[Any], Any], *, mask: int | None) -> Any:
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
            launch.met(orders.program(), values(given[place]), True if mask is None else values(given[mask]), kinds)
        return result

    return wrapper


def _together(operation: Any) -> Any:
    @functools.wraps(operation)
    def wrapper(self: Any, *given: Any, **named: Any) -> Any:
        if _launch is not None:
            _launch.threads_met()
        return operation(self, *given, **named)

    return wrapper

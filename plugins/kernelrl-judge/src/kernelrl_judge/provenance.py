"""Whose writing the values of a call are: torch's and the kernels', or somebody else's, past both.

A tensor's memory may be changed in ways that no list of operators shows: through an array of another library that
shares it, a pointer, a function that torch calls for each element, another process. Here the memory of each tensor
is summed up when torch or a kernel has written it, and again when either reads it: what differs was written by neither.

This works inside the runner, and what it says could be forged. It is for kernels whose launches tell of themselves
(`launch`), as those of Triton's interpreter and functions of extensions for the processor do. Values that are read past
both can come back as numbers, too: fractions that operators and launches are given are counted, but not whole numbers,
which sizes and places are.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernelrl_judge import calls_back
from kernelrl_judge.listing import TORCHS, Listing, tensors_in

__all__ = ["Watch", "extension_calls_tell", "launch", "launches_tell", "least_address", "told"]

_OVERWRITING = frozenset({"aten::copy_", "aten::fill_", "aten::zero_"})
"""Operators that do not read the first tensor that they are given, and leave what it does not cover of its memory."""
_REPLACING = frozenset({"aten::set_", "aten::resize_"})
"""Operators that give the first tensor other memory."""
_MANY_NUMBERS = 64
_NUMBER_BYTES = 8
_MAPS = Path("/proc/self/maps")
_telling: bool | None = None
_watching: list[Watch] = []
_switches: list[Callable[[Any], None]] = []
_with_extensions = False


def launches_tell() -> None:
    """From now on, every launch of a kernel in this process tells of itself."""
    global _telling
    _telling = _telling is not False


def extension_calls_tell(switch: Callable[[Any], None] | None = None, *, all_of_them: bool = True) -> None:
    """Functions of an extension tell of their calls, as `told` has them, or once they know whom.

    Args:
        switch: is given a function while a watch goes on, and None afterwards. The function is called with the
            arguments before each call; what it returns, with the result after it.
        all_of_them: False if some do not tell; then nothing can be said of this process, whatever others tell.
    """
    global _telling, _with_extensions
    _with_extensions = True
    _telling = all_of_them and _telling is not False
    if switch is not None:
        _switches.append(switch)


def told(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of an extension that tells of its calls."""

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not _watching:
            return function(*arguments, **named)
        result = None
        ended = _entered((arguments, named))
        try:
            result = function(*arguments, **named)
        finally:
            ended(result)
        return result

    return wrapper


@contextlib.contextmanager
def launch(arguments: Any) -> Iterator[Watch | None]:
    """Around the launch of a kernel: it reads what it is given, and may write it. Gives who watches, if one does."""
    if not _watching:
        yield None
        return
    ended = _begun(arguments)
    try:
        yield _watching[-1]
    finally:
        ended(None)


def _begun(arguments: Any) -> Callable[[Any], None]:
    """A kernel is launched, or a function called; to be called with what it returns."""
    watch = _watching[-1]
    given = [*tensors_in(arguments)]
    watch.numbers.update(_fractions(arguments))
    watch.read(given)
    watch.inside += 1

    def ended(result: Any) -> None:
        watch.inside -= 1
        # Through an address a kernel may write to any tensor.
        by_address = any(tensor.dtype is torch.int64 for tensor in given) or _has_address(arguments)
        watch.written(_alive() if by_address else [*given, *tensors_in(result)])

    return ended


def _entered(arguments: Any) -> Callable[[Any], None]:
    """A function of an extension is called; to be called with what it returns."""
    watch = _watching[-1]
    watch.leads_back |= calls_back.is_told_of(arguments)
    ended = _begun(arguments)

    def left(result: Any) -> None:
        watch.leads_back |= end()
        ended(result)

    end = calls_back.begin(_DISPATCHED | {left.__code__})
    return left


class Watch(Listing):
    """Sums up memory, too, between its beginning and its end."""

    def __init__(self) -> None:
        super().__init__()
        self.strange = self.strange_bytes = 0
        """Elements of the memory of tensors that torch or a kernel has read, and that held what neither wrote."""
        self.raced = 0
        """Elements that a program of a launch has read, and that another of the same launch had written."""
        self.numbers: set[float] = set()
        """Fractions that they were given as numbers."""
        self.inside = 0
        """Launches under way. A function of an extension writes and has torch read, as it likes."""
        self.leads_back = False
        """Whether Python was at work within a function of an extension, or could have been."""
        self._sums: dict[int, tuple[int, int]] = {}

    @property
    def tells(self) -> bool:
        """Whether this process is one whose launches tell of themselves."""
        return bool(_telling)

    def begin(self) -> None:
        """Watch from now on. Where launches do not tell of themselves, nothing is summed up."""
        if _telling:
            self.written(_alive())
            _watching.append(self)
            for switch in _switches:
                switch(_entered)
        super().begin()

    def end(self) -> None:
        """Watch no more; once is enough."""
        super().end()
        if self in _watching:
            _watching.remove(self)
            for switch in _switches:
                switch(None)
            if len(self.numbers) >= _MANY_NUMBERS:
                self.strange += len(self.numbers)
                self.strange_bytes += _NUMBER_BYTES * len(self.numbers)

    def _made(self, func: Any, given: list[Any], args: Any, kwargs: Any) -> Any:
        if self not in _watching:
            return func(*args, **kwargs)
        self.numbers.update(_fractions((args, kwargs)))
        if func._schema.is_mutable:
            self.read(_read_by(func._schema.name, given))
            result = func(*args, **kwargs)
            self.written([*tensors_in(result), *given])
            return result
        result = func(*args, **kwargs)
        made = [*tensors_in(result)]
        places, new = {_memory(tensor) for tensor in given}, {_memory(tensor) for tensor in made}
        # To make a view is neither to read nor to write.
        self.read([tensor for tensor in given if _memory(tensor) not in new])
        self.written([tensor for tensor in made if _memory(tensor) not in places])
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self in _watching and isinstance(func, torch._ops.OpOverload) and func.namespace not in TORCHS:
            self.read([*tensors_in((args, kwargs))])
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _others(self, arguments: Any, result: Any) -> None:
        if self in _watching:
            self.numbers.update(_fractions(arguments))
            if _with_extensions:
                # It may be what an extension registered.
                self.written([*tensors_in((arguments, result))])

    def read(self, tensors: list[Any]) -> None:
        """Torch or a kernel reads tensors."""
        for tensor in tensors:
            address, size = _memory(tensor)
            entry = (size, _sum(address, size))
            if size and not self.inside and self._sums.get(address) != entry:
                # Of what else lies there nothing would be known any more.
                self.strange += size // tensor.element_size()
                self.strange_bytes += size
                self._sums[address] = entry

    def written(self, tensors: list[Any]) -> None:
        """Torch or a kernel may have written tensors."""
        for address, size in {_memory(tensor) for tensor in tensors}:
            self._sums[address] = (size, _sum(address, size))


_DISPATCHED = frozenset({Watch.__torch_dispatch__.__code__, Listing.__torch_dispatch__.__code__})


def _read_by(name: str, given: list[Any]) -> list[Any]:
    """Which of the tensors that an operator is given it reads, or does not write as a whole."""
    is_left_out = name in _REPLACING
    if name in _OVERWRITING:
        with torch._C.DisableTorchFunction():
            is_left_out = given[0].is_contiguous() and given[0].nbytes >= _memory(given[0])[1]
    return given[1:] if is_left_out else given


def _memory(tensor: Any) -> tuple[int, int]:
    """Address and bytes of a tensor's memory; no bytes where it has none here."""
    with torch._C.DisableTorchFunction():
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return 0, 0
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


def _sum(address: int, size: int) -> int:
    return zlib.crc32((ctypes.c_char * size).from_address(address)) if size else 0


def _alive() -> list[Any]:
    """Every tensor that somebody holds in Python. Those of the zygote are not among them, nor are they written to."""
    return [held for held in gc.get_objects() if issubclass(type(held), torch.Tensor)]


def _fractions(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _fractions(item)
    elif isinstance(value, float):
        yield value


@functools.cache
def least_address() -> int:
    """A number below it is the address of no tensor.

    Where a program is loaded at a fixed place, its heap lies behind it, far below everything else.
    """
    heaps = [line for line in _MAPS.read_text().splitlines() if line.endswith("[heap]")] if _MAPS.exists() else []
    return min([1 << 32, *(int(line.partition("-")[0], 16) for line in heaps)])


def _has_address(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, list | tuple):
        return any(map(_has_address, value))
    return isinstance(value, int) and value >= least_address()

"""Capture of calls of a function into graphs; the same code for the candidate and for the reference.

A graph reads the SM clock, restores tensors, makes the calls between two time stamps, copies the outputs and the state
after the calls to the places that the judge reads, poisons the outputs, and writes a last time stamp.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.replay.library import STAMPS, Library, Node, Recording

__all__ = ["CLOCK_NS", "Captured", "NotCaptured", "Recorder", "storage_range"]

CLOCK_NS = 50_000
_POISON = 0xFF
"""Byte that fills outputs before a replay: NaN in every floating-point type."""
_GATE_BYTES = 64
"""Memory of the gate, before the time stamps."""
_BYTES_PER_RECORDING = 8 * STAMPS
_BEFORE_CALLS = 16
_AFTER_CALLS = 24
_AFTER_COPIES = 32
"""Offsets of the three times among the time stamps of a recording, in bytes; `STAMPS` lists the numbers."""

_Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


class NotCaptured(Exception):
    """A call cannot be captured; the argument is the reason."""


@attrs.frozen
class Captured:
    """A graph of calls, and the objects that must live as long as it."""

    recording: Recording
    outputs: list[Any]
    """Output of each call."""
    nodes: list[Node]
    """Nodes of the calls."""
    first: int
    """Number of the first of `nodes` in the graph."""
    kept: tuple[Any, ...]
    """Further objects that the graph refers to."""


class Recorder:
    """Captures calls in this process.

    Args:
        library: with its device code loaded.
        most: number of recordings with time stamps of their own; later ones reuse the memory of the first.
    """

    def __init__(self, library: Library, most: int = 8) -> None:
        self._library = library
        self._memory = library.host_memory(_GATE_BYTES + most * _BYTES_PER_RECORDING)
        self._captures = 0
        self._replays = 0
        self._most = most
        self.stream = torch.cuda.ExternalStream(library.stream())
        # The original functions of torch: a candidate that is loaded later cannot replace them here.
        self._graph_class = torch.cuda.CUDAGraph
        self._on_stream = torch.cuda.stream

    @property
    def library(self) -> Library:
        """The library that replays its recordings."""
        return self._library

    @property
    def gate_at(self) -> int:
        """Address of the word that opens the gate of a replay."""
        return self._memory

    def next_replay(self) -> int:
        """Number of the next replay in this process, at which its gate opens."""
        self._replays += 1
        return self._replays

    def warm_up(self, function: Callable[..., Any], arguments: Sequence[Any], calls: int) -> Any:
        """Make calls on the stream of the recordings; returns the output of the last call."""
        found = None
        with torch.no_grad(), self._on_stream(self.stream):
            for _ in range(calls):
                found = function(*arguments)
            self._library.wait(self.stream.cuda_stream)
        return found

    def record(
        self,
        function: Callable[..., Any],
        slots: Sequence[Sequence[Any]],
        *,
        restored: _Pairs = (),
        copies: Callable[[int, Any], _Pairs],
        left: _Pairs = (),
        lasting: Sequence[tuple[int, int]] = (),
        before_copies: Callable[[], None] = lambda: None,
    ) -> Captured:
        """Capture one call on each slot.

        Args:
            slots: arguments of each call.
            restored: pairs of a tensor and the value that it gets before the first call of every replay.
            copies: given the number of a call and its output, returns pairs of a place and a tensor of the output.
            left: pairs of a place and a tensor that is copied to it after the calls.
            lasting: address ranges of memory that no call allocates; outputs there are not poisoned.
            before_copies: called after the calls and before the copies.

        Raises:
            NotCaptured: a call invalidated the capture without an error.
            RuntimeError: the driver reports an error.
            Exceptions of `function`.
        """
        separate = self._capture(function, slots, restored, copies, left, lasting, before_copies)
        if not _shared(separate.outputs):
            return separate
        # Calls return the same memory: each output must be copied before the next call overwrites it.
        self._library.destroy(separate.recording.ready)
        return self._capture(function, slots, restored, copies, left, lasting, before_copies, copies_at_once=True)

    def _capture(
        self,
        function: Callable[..., Any],
        slots: Sequence[Sequence[Any]],
        restored: _Pairs,
        copies: Callable[[int, Any], _Pairs],
        left: _Pairs,
        lasting: Sequence[tuple[int, int]],
        before_copies: Callable[[], None],
        copies_at_once: bool = False,
    ) -> Captured:
        library = self._library
        stream = self.stream.cuda_stream
        stamps_at = self._memory + _GATE_BYTES + self._captures % self._most * _BYTES_PER_RECORDING
        self._captures += 1
        graph = self._graph_class(keep_graph=True)
        outputs: list[Any] = []
        with torch.no_grad(), self._on_stream(self.stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                library.clock(stream, stamps_at, CLOCK_NS)
                for tensor, value in restored:
                    tensor.copy_(value)
                library.stamp(stream, stamps_at + _BEFORE_CALLS)
                first = self._captured()
                for number, arguments in enumerate(slots):
                    with library.capturing(stream):
                        output = function(*arguments)
                    outputs.append(output)
                    if any(tensor.is_conj() or tensor.is_neg() for tensor in tensors(output)):
                        raise NotCaptured("an output is a view that torch conjugates or negates when it is read")
                    if copies_at_once:
                        _copy(copies(number, output))
                last = self._captured()
                before_copies()
                library.stamp(stream, stamps_at + _AFTER_CALLS)
                if not copies_at_once:
                    for number, output in enumerate(outputs):
                        _copy(copies(number, output))
                _copy(left)
                poisoned = [] if copies_at_once else _storages(outputs, lasting)
                for address, count in poisoned:
                    library.fill(stream, address, _POISON, count)
                library.stamp(stream, stamps_at + _AFTER_COPIES)
                graph.capture_end()
            except BaseException:
                _abandon(graph)
                raise
            raw = graph.raw_cuda_graph()
            nodes = library.nodes(raw, first, last)
            ready = library.instantiate(raw, stream)
            for address, count in poisoned:
                library.fill(stream, address, _POISON, count)
            library.wait(stream)
        recording = Recording(raw, ready, stamps_at)
        return Captured(recording, outputs, nodes, first, (graph, restored, left))

    def _captured(self) -> int:
        found = self._library.captured(self.stream.cuda_stream)
        if found is None:
            raise NotCaptured("a call invalidated the capture without an error")
        return found


def _copy(pairs: _Pairs) -> None:
    for place, tensor in pairs:
        place.copy_(tensor)


def _abandon(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that failed. Reset the generator and the allocator of torch, which otherwise stay in capture."""
    with contextlib.suppress(RuntimeError):
        graph.capture_end()
        return
    device = torch.cuda.current_device()
    with contextlib.suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, graph.pool())
    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())


def storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Address of the first byte of a tensor's memory, and address after its last byte."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _shared(outputs: Sequence[Any]) -> bool:
    """Whether outputs of different calls share memory."""
    seen: set[tuple[int, int]] = set()
    for output in outputs:
        ranges = {storage_range(tensor) for tensor in tensors(output) if tensor.numel()}
        if any(begin < other_end and other_begin < end for begin, end in ranges for other_begin, other_end in seen):
            return True
        seen |= ranges
    return False


def _storages(outputs: Sequence[Any], lasting: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Address and size of each block of memory of outputs, except in `lasting` ranges."""
    ranges = {storage_range(tensor) for output in outputs for tensor in tensors(output) if tensor.numel()}
    return sorted(
        (begin, end - begin)
        for begin, end in ranges
        if not any(begin < other_end and other_begin < end for other_begin, other_end in lasting)
    )

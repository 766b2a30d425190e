"""Calls of a function, captured into graphs; the same code for the candidate and for the reference.

A graph reads the SM clock, restores tensors, makes the calls between two time stamps, copies outputs and what was left
in tensors to where the judge reads them, fills outputs with poison, and stamps the time again.
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
"""Of outputs before a pass: NaN in every floating-point type."""
_BYTES_PER_RECORDING = 8 * STAMPS

_Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


class NotCaptured(Exception):
    """A call cannot be captured; the argument is the reason."""


@attrs.frozen
class Captured:
    """A graph of calls, and what has to live as long as it."""

    recording: Recording
    outputs: list[Any]
    """What each call returned."""
    nodes: list[Node]
    """Those of the calls."""
    first: int
    """Number of the first of `nodes` in the graph."""
    kept: tuple[Any, ...]


class Recorder:
    """Captures calls in this process.

    Args:
        library: with its device code loaded.
        most: number of recordings that it makes.
    """

    def __init__(self, library: Library, most: int = 8) -> None:
        self._library = library
        self._memory = library.host_memory(64 + most * _BYTES_PER_RECORDING)
        self._made = 0
        self._turns = 0
        self._most = most
        self.stream = torch.cuda.ExternalStream(library.stream())
        # Methods of torch as they are now: a candidate that is loaded later cannot replace them here.
        self._graph_class = torch.cuda.CUDAGraph
        self._on_stream = torch.cuda.stream

    @property
    def gate_at(self) -> int:
        """Address of the word that opens the gate of a pass."""
        return self._memory

    def next_turn(self) -> int:
        """Number of the next pass in this process; the gate opens at it."""
        self._turns += 1
        return self._turns

    def warm_up(self, function: Callable[..., Any], arguments: Sequence[Any], calls: int) -> Any:
        """Make calls on the stream of the recordings; returns what the last one returned."""
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
            restored: pairs of a tensor and what it holds before the first call of every pass.
            copies: given the number of a call and its output, pairs of a place and a tensor of the output.
            left: pairs of a place and a tensor whose content after the calls is wanted.
            lasting: address ranges of memory that is not made by a call; outputs there are not poisoned.
            before_copies: called after the calls.

        Raises:
            NotCaptured: a call invalidated the capture without an error.
            RuntimeError: the driver refuses.
            What `function` raises.
        """
        separate = self._capture(function, slots, restored, copies, left, lasting, before_copies)
        if not _shared(separate.outputs):
            return separate
        # Calls return the same memory: each output is copied before the next call overwrites it.
        self._library.destroy(separate.recording.ready)
        return self._capture(function, slots, restored, copies, left, lasting, before_copies, at_once=True)

    def _capture(
        self,
        function: Callable[..., Any],
        slots: Sequence[Sequence[Any]],
        restored: _Pairs,
        copies: Callable[[int, Any], _Pairs],
        left: _Pairs,
        lasting: Sequence[tuple[int, int]],
        before_copies: Callable[[], None],
        at_once: bool = False,
    ) -> Captured:
        library, stream = self._library, self.stream.cuda_stream
        stamps_at = self._memory + 64 + self._made % self._most * _BYTES_PER_RECORDING
        self._made += 1
        graph = self._graph_class(keep_graph=True)
        outputs: list[Any] = []
        with torch.no_grad(), self._on_stream(self.stream):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                library.clock(stream, stamps_at, CLOCK_NS)
                for tensor, value in restored:
                    tensor.copy_(value)
                library.stamp(stream, stamps_at + 16)
                first = self._captured()
                for number, arguments in enumerate(slots):
                    with library.capturing(stream):
                        outputs.append(function(*arguments))
                    if any(tensor.is_conj() or tensor.is_neg() for tensor in tensors(outputs[-1])):
                        raise NotCaptured("an output is a view that torch conjugates or negates when it is read")
                    if at_once:
                        _copy(copies(number, outputs[-1]))
                last = self._captured()
                before_copies()
                library.stamp(stream, stamps_at + 24)
                if not at_once:
                    for number, output in enumerate(outputs):
                        _copy(copies(number, output))
                _copy(left)
                made = [] if at_once else list(_storages(outputs, lasting))
                for at, count in made:
                    library.fill(stream, at, _POISON, count)
                library.stamp(stream, stamps_at + 32)
                graph.capture_end()
            except BaseException:
                _abandon(graph)
                raise
            raw = graph.raw_cuda_graph()
            nodes = library.nodes(raw, first, last)
            ready = library.instantiate(raw, stream)
            for at, count in made:
                library.fill(stream, at, _POISON, count)
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
    """Leave a capture that failed. torch leaves its generator and its allocator in the state of a capture then."""
    with contextlib.suppress(RuntimeError):
        graph.capture_end()
        return
    device = torch.cuda.current_device()
    with contextlib.suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, graph.pool())
    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())


def storage_range(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses of the first byte of a tensor's memory and of that behind the last."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


def _shared(outputs: Sequence[Any]) -> bool:
    """Whether outputs of two calls have memory in common."""
    seen: set[tuple[int, int]] = set()
    for output in outputs:
        ranges = {storage_range(tensor) for tensor in tensors(output) if tensor.numel()}
        if any(begin < other_end and other_begin < end for begin, end in ranges for other_begin, other_end in seen):
            return True
        seen |= ranges
    return False


def _storages(outputs: Sequence[Any], lasting: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Address and size of the memory of outputs that calls made."""
    found = {storage_range(tensor) for output in outputs for tensor in tensors(output) if tensor.numel()}
    return sorted(
        (begin, end - begin)
        for begin, end in found
        if not any(begin < other_end and other_begin < end for other_begin, other_end in lasting)
    )

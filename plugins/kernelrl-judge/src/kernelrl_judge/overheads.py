"""What a window takes beside its calls: messages, waiting for the device, and copying outputs. Measured by doing it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import torch

from kernelrl_judge.device_facts import reset_persisting_l2
from kernelrl_judge.layouts import places
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference
from kernelrl_judge.runner_memory import Outputs
from kernelrl_judge.running import Runner
from kernelrl_judge.value_trees import encode_tree
from kernelrl_judge.windows import empty_window, made_events, rehearse

__all__ = ["REHEARSED", "Flush", "Overheads", "TurnCosts", "message_cost", "turn_costs"]

REHEARSED = b"rehearsed"
"""Body of an order to turn to a runner, long before a window."""

_FEWEST_CALIBRATIONS = 3
_BEYOND_CACHES_BYTES = 512 << 20
_MESSAGES = 15
_LONGEST_MESSAGE_S = 1e-4
"""What a processor of one's own takes for a message is a third of that; the rest is that of others."""
_WAKES = 30
_WARM_UP_S = 0.1
"""Until the clocks of an idle GPU have risen: what it is kept busy with takes a number of cycles."""


def message_cost(runner: Runner, expect: Callable[..., Any], *, spin: bool) -> float:
    """Time of an order and its answer without any work, in seconds. Only before a candidate is loaded.

    Others may delay both sides, more so where they sleep while they wait: too much must never be taken off.

    Args:
        spin: whether both sides wait busily, as they do where the device is a GPU and the processor has time to spare.
    """
    times = []
    for _ in range(_MESSAGES):
        started = time.perf_counter()
        runner.send(FrameKind.PING)
        expect(FrameKind.DONE, spin=spin)
        times.append(runner.heard_at - started)
    return min(sorted(times)[_MESSAGES // 4], _LONGEST_MESSAGE_S) if spin else min(times)


@attrs.frozen
class TurnCosts:
    """What a GPU and a runner take for themselves before and after calls, in seconds."""

    wake_s: float
    """Until the GPU has turned from the judge to a runner; most times it takes less."""
    order_s: float
    """A window without calls, from its order until its calls are made, beyond what one takes here."""


def turn_costs(runner: Runner, expect: Callable[..., Any]) -> TurnCosts:
    """Only before a candidate is loaded, and while nobody else uses the GPU."""
    flush = Flush("cuda")
    order = encode_tree({"count": 0, "watch": None})
    wakes, beyond = [], []
    warm_at = time.perf_counter() + _WARM_UP_S
    while time.perf_counter() < warm_at:
        flush()
    for _ in range(_WAKES):
        runner.send(FrameKind.WAKE, REHEARSED)
        expect(FrameKind.DONE, spin=True)
        flush()
        started = time.perf_counter()
        runner.send(FrameKind.WAKE)
        expect(FrameKind.DONE, spin=True)
        woken = time.perf_counter()
        runner.send(FrameKind.WINDOW, order)
        expect(FrameKind.CALLED, spin=True)
        wakes.append(woken - started)
        ordered_s = runner.heard_at - woken
        expect(FrameKind.DONE, spin=True)
        expect(FrameKind.FACTS, spin=True)
        beyond.append(ordered_s - _empty_window("cuda")[0])
    return TurnCosts(sorted(wakes)[int(0.9 * _WAKES)], statistics.median(beyond))


def _empty_window(device: str) -> tuple[float, float]:
    """What a window without calls takes here, in seconds: as a whole, and between its own clock's readings."""
    events = made_events(device)
    # A device that a runner has used turns to this process first, which takes longer than all else.
    rehearse(device)
    started = time.perf_counter()
    result = empty_window(device, events)
    return time.perf_counter() - started, result.calls_s


class Overheads:
    """What is taken off the windows of a measurement.

    Args:
        outputs_on: the device in whose memory a runner puts outputs.
    """

    def __init__(self, reference: Reference, outputs_on: str) -> None:
        self._reference = reference
        self._device = reference.device
        self._outputs_on = outputs_on
        self._export_s: dict[int, list[float]] = {}
        self._empty_s: list[tuple[float, float]] = []
        self._scratches: dict[int, _Scratch] = {}

    def forget(self) -> None:
        """Begin anew."""
        self._export_s.clear()
        self._empty_s.clear()

    def release(self) -> None:
        """Let go of memory; what was measured stays."""
        self._scratches.clear()

    def calibrate(self, calls: int) -> None:
        """Once per round and not many times in a row, which would make it faster than it is in a runner."""
        self._export_s.setdefault(calls, []).append(self.scratch(calls).export())
        self._measure_empty_window()

    def empty_window(self) -> tuple[float, float]:
        """What a window without calls takes: as a whole, and between its own clock's readings."""
        while len(self._empty_s) < _FEWEST_CALIBRATIONS:
            self._measure_empty_window()
        return (
            self._typical([whole_s for whole_s, _ in self._empty_s]),
            self._typical([calls_s for _, calls_s in self._empty_s]),
        )

    def _typical(self, times: list[float]) -> float:
        """Of what is taken off: on a busy processor the least, because too much must never be taken off."""
        return statistics.median(times) if self._device == "cuda" else min(times)

    def _measure_empty_window(self) -> None:
        self._empty_s.append(_empty_window(self._device))

    def scratch(self, calls: int) -> _Scratch:
        """Places for the outputs of so many calls."""
        if calls not in self._scratches:
            if self._device == "cuda":
                self._scratches.clear()
            self._scratches[calls] = _Scratch(self._reference.like, calls, self._device, self._outputs_on)
        return self._scratches[calls]

    def export_cost(self, calls: int) -> float:
        """What it takes to copy the outputs of so many calls, in seconds, by doing it here with the runner's code."""
        known = self._export_s.setdefault(calls, [])
        while len(known) < _FEWEST_CALIBRATIONS:
            known.append(self.scratch(calls).export())
        return self._typical(known)


class Flush:
    """Empties the L2 cache of a GPU, so that a window does not begin with what staging left there."""

    def __init__(self, device: str) -> None:
        self._buffer = None
        if device == "cuda":
            size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
            self._buffer = torch.empty(max(size, 8 << 20), dtype=torch.uint8, device=device)

    def __call__(self) -> None:
        if self._buffer is not None:
            reset_persisting_l2()
            self._buffer.zero_()
            torch.cuda.synchronize()


class _Room:
    """Bytes in the place of a runner's arena."""

    def __init__(self, content: torch.Tensor) -> None:
        self._bytes = content

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = math.prod(shape) * torch.empty((), dtype=dtype).element_size()
        return self._bytes[offset : offset + count].view(dtype).view(shape)


class _Scratch:
    """Outputs of some calls and a place for each, in the judge's own memory."""

    def __init__(self, like: Any, calls: int, device: str, outputs_on: str) -> None:
        trees, room = places(like, calls, outputs_on)
        self._device = device
        self._outputs = Outputs(-1)
        # An object of its own: in a cycle of references the memory would outlive the measurement.
        self._outputs.arena = _Room(torch.zeros(max(room, 1), dtype=torch.uint8, device=outputs_on))
        self._targets = self._outputs.places(trees)
        # As many different ones as the caches of a device cannot hold; on the processor each is copied when it is made.
        different = min(calls, 1 + _BEYOND_CACHES_BYTES // max(room // calls, 1)) if device == "cuda" else 1
        values = [_emptied(like, device) for _ in range(different)]
        # Each an object of its own, as in a runner: to look at one that was not looked at before takes longer.
        self._values = [_viewed(values[index % different]) for index in range(calls if device == "cuda" else 1)]

    def keep(self, index: int, value: Any) -> None:
        """Take an output as a runner does."""
        self._outputs.fill(self._targets[index], [value])
        self._outputs.note([value])

    def export(self) -> float:
        """Copy one output for each call to its place; returns what that took, in seconds."""
        self._outputs.returned.forget()
        started = time.perf_counter()
        if self._device == "cuda":
            self._outputs.fill([place for targets in self._targets for place in targets], self._values)
            torch.cuda.synchronize()
        else:
            for index in range(len(self._targets)):
                self.keep(index, self._values[0])
        return time.perf_counter() - started


def _emptied(value: Any, device: str) -> Any:
    return _each(value, lambda tensor: torch.zeros(tensor.shape, dtype=tensor.dtype, device=device))


def _viewed(value: Any) -> Any:
    return _each(value, torch.Tensor.detach)


def _each(value: Any, made: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return made(value)
    if isinstance(value, list | tuple):
        return [_each(item, made) for item in value]
    if isinstance(value, dict):
        return {key: _each(item, made) for key, item in value.items()}
    return value

"""What a window takes beside its calls: messages, waiting for the device, and copying outputs. Measured by doing it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from kernelrl_judge.device_facts import reset_persisting_l2
from kernelrl_judge.exchange import places
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference
from kernelrl_judge.runner_memory import Outputs
from kernelrl_judge.running import Runner
from kernelrl_judge.windows import window

__all__ = ["Flush", "Overheads", "message_cost", "wake_cost"]

_FEWEST_CALIBRATIONS = 3
_BEYOND_CACHES_BYTES = 512 << 20
_MESSAGES = 15
_WAKES = 30


def message_cost(runner: Runner, expect: Callable[..., Any], *, spin: bool) -> float:
    """Time of an order and its answer without any work, in seconds. Only before a candidate is loaded.

    The median where both sides wait busily. Where they sleep, others may delay them, and the least is taken: too much
    must never be taken off.

    Args:
        spin: whether both sides wait busily, as they do where the device is a GPU and the processor has time to spare.
    """
    times = []
    for _ in range(_MESSAGES):
        started = time.perf_counter()
        runner.send(FrameKind.PING)
        expect(FrameKind.DONE, spin=spin)
        times.append(time.perf_counter() - started)
    return statistics.median(times) if spin else min(times)


def wake_cost(runner: Runner, expect: Callable[..., Any]) -> float:
    """Time until the GPU has turned from the judge to a runner, in seconds; most times it takes less.

    Only before a candidate is loaded, and while nobody else uses the GPU.
    """
    flush, times = Flush("cuda"), []
    for _ in range(_WAKES):
        flush()
        started = time.perf_counter()
        runner.send(FrameKind.WAKE)
        expect(FrameKind.DONE, spin=True)
        times.append(time.perf_counter() - started)
    return sorted(times)[int(0.9 * _WAKES)]


class Overheads:
    """What is taken off the windows of a measurement."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._device = reference.device
        self._export_s: dict[int, list[float]] = {}
        self._empty_s: list[tuple[float, float]] = []
        self._scratches: dict[int, _Scratch] = {}

    def forget(self) -> None:
        """Begin anew."""
        self._export_s.clear()
        self._empty_s.clear()

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
        started = time.perf_counter()
        result = window(self._reference.model, [], self._device)
        self._empty_s.append((time.perf_counter() - started, result.calls_s))

    def scratch(self, calls: int) -> _Scratch:
        """Places for the outputs of so many calls."""
        if calls not in self._scratches:
            if self._device == "cuda":
                self._scratches.clear()
            self._scratches[calls] = _Scratch(self._reference.like, calls, self._device)
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

    def __init__(self, like: Any, calls: int, device: str) -> None:
        trees, room = places(like, calls, device)
        self._device = device
        self._outputs = Outputs(-1)
        # An object of its own: in a cycle of references the memory would outlive the measurement.
        self._outputs.arena = _Room(torch.zeros(max(room, 1), dtype=torch.uint8, device=device))
        self._targets = self._outputs.places(trees)
        # As many different ones as the caches of a device cannot hold; on the processor each is copied when it is made.
        different = min(calls, 1 + _BEYOND_CACHES_BYTES // max(room // calls, 1)) if device == "cuda" else 1
        values = [_emptied(like, device) for _ in range(different)]
        self._values = [values[index % different] for index in range(calls if device == "cuda" else 1)]

    def keep(self, index: int, value: Any) -> None:
        """Take an output as a runner does."""
        self._outputs.fill(self._targets[index], [value])

    def export(self) -> float:
        """Copy one output for each call to its place; returns what that took, in seconds."""
        self._outputs.returned.forget()
        started = time.perf_counter()
        if self._device == "cuda":
            self._outputs.fill([place for targets in self._targets for place in targets], self._values)
            torch.cuda.synchronize()
        else:
            for targets in self._targets:
                self._outputs.fill(targets, self._values)
        return time.perf_counter() - started


def _emptied(value: Any, device: str) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros(value.shape, dtype=value.dtype, device=device)
    if isinstance(value, list | tuple):
        return [_emptied(item, device) for item in value]
    if isinstance(value, dict):
        return {key: _emptied(item, device) for key, item in value.items()}
    return value

"""Windows of direct calls: their preparation, the calls, and the export of their outputs."""

from __future__ import annotations

import gc
import time
from typing import Any

import torch

from kernelrl_judge.protocol.device_memory import give_back_spare
from kernelrl_judge.protocol.failures import Phase
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.orders import KernelBenchOrder, StageOrder, WindowOrder
from kernelrl_judge.protocol.trees import ordered_as
from kernelrl_judge.protocol.values import decode_tree, encode_tree, leaves_of
from kernelrl_judge.runner.allocations import fill_fresh_memory, take_at_once
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.timed_calls import host_memory
from kernelrl_judge.timed_calls.kernelbench import measure
from kernelrl_judge.timed_calls.outputs import copy_outputs
from kernelrl_judge.timed_calls.window import CallWindow, Events, call_window, make_events

__all__ = ["TimedWindows"]


class TimedWindows:
    """Serves orders to time calls of a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._channel = candidate.channel
        self._device = candidate.device
        self._inputs = candidate.inputs
        self._outputs = candidate.outputs
        self._staged: list[Any] = []
        """Arguments of each call."""
        self._places: list[list[torch.Tensor]] = []
        """Places of the outputs of each call."""
        self._described: Any = None
        """Tree of the places of one output."""
        self._events: Events | None = None
        self._collects_garbage = False
        """Whether the candidate had garbage collection enabled at the end of the last window."""

    # --- orders -----------------------------------------------------------------------------------------------------

    def impose(self, frame: Frame) -> None:
        """Give the candidate a state before a window."""
        self._inputs.refresh()
        self._candidate.impose(decode_tree(frame.body))
        self._candidate.wait()
        self._channel.reply(FrameKind.STAGED)

    def stage(self, frame: Frame) -> None:
        """Prepare everything that the calls of a window need."""
        self._inputs.refresh()
        order = StageOrder.decoded(frame.body)
        self._places = self._outputs.places(order.outputs)
        self._described = order.outputs[0] if order.outputs else None
        self._staged = []
        if self._device == "cuda":
            # Trials may have left unused memory. The judge's windows are as long as free memory allows.
            give_back_spare()
            take_at_once([*leaves_of(order.outputs)])
        if order.announced:
            self._staged = self._inputs.announced(order.inputs)
        else:
            self._staged = [self._inputs.values(arguments, self._device) for arguments in order.inputs]
        self._events = make_events(self._device)
        if self._device == "cpu":
            fill_fresh_memory(None)
            host_memory.ready([*order.ready] * len(order.inputs))
            for place in self._places_of_first(len(self._places)):
                # The pages are touched now, and not within the window.
                place.zero_()
        self._candidate.wait()
        self._channel.reply(FrameKind.STAGED)
        self._channel.expect_soon()

    def window(self, frame: Frame) -> None:
        """Make the calls that were staged, or the first of them."""
        order = WindowOrder.decoded(frame.body)
        self._time(self._staged[: order.count])

    def time_as_kernelbench(self, frame: Frame) -> None:
        """Time calls with a method of KernelBench."""
        order = KernelBenchOrder.decoded(frame.body)
        self._inputs.refresh()
        arguments = self._inputs.values(order.arguments, self._device)
        fill_fresh_memory(None)
        model = self._candidate.model
        times_ms = self._channel.attempt(
            Phase.FORWARD,
            lambda: measure(lambda: model(*arguments), order.method, order.trials, self._device),
        )
        self._channel.reply(FrameKind.FACTS, encode_tree(times_ms))

    # --- a window ---------------------------------------------------------------------------------------------------

    def _time(self, staged: list[Any]) -> None:
        """Make a window of calls, report its end, and report this process's own times as evidence."""
        started = time.perf_counter()
        # Garbage collection may execute code of the candidate: it is allowed within the window, and not after it.
        if self._collects_garbage:
            gc.enable()
        result, called_at = self._call(staged)
        self._collects_garbage = gc.isenabled()
        gc.disable()
        self._channel.send(FrameKind.DONE)
        times = {
            "calls_s": result.calls_s,
            "events_s": result.events_s(),
            "whole_s": (called_at or time.perf_counter()) - started,
        }
        self._channel.send(FrameKind.FACTS, encode_tree(times))

    def _call(self, staged: list[Any]) -> tuple[CallWindow, float | None]:
        """Make a window of calls and export every output.

        Returns:
            The window. On a GPU also the time by this process's clock after the calls and before the export.
        """
        return self._call_on_cpu(staged) if self._device == "cpu" else self._call_on_gpu(staged)

    def _call_on_cpu(self, staged: list[Any]) -> tuple[CallWindow, None]:
        model = self._candidate.model
        attempt = self._channel.attempt
        places_of = self._places

        # Each output is exported before the next call, which could otherwise replace it.
        def keep(index: int, output: Any) -> None:
            attempt(Phase.EXPORT, lambda: copy_outputs(places_of[index], [self._ordered(output)]))

        return attempt(Phase.FORWARD, lambda: call_window(model, staged, self._device, keep)), None

    def _call_on_gpu(self, staged: list[Any]) -> tuple[CallWindow, float]:
        model = self._candidate.model
        attempt = self._channel.attempt
        # Everything that takes a while is done before the calls.
        events = self._events
        self._events = None
        places = self._places_of_first(len(staged))
        result = attempt(Phase.FORWARD, lambda: call_window(model, staged, self._device, events=events))
        self._channel.send(FrameKind.CALLED)
        called_at = time.perf_counter()
        attempt(Phase.EXPORT, lambda: self._export(places, result.outputs))
        return result, called_at

    def _places_of_first(self, calls: int) -> list[torch.Tensor]:
        """Places of all outputs of the first calls."""
        return [place for places in self._places[:calls] for place in places]

    def _ordered(self, output: Any) -> Any:
        """An output with the keys of its dicts in the order of the reference's."""
        return output if type(output) is torch.Tensor else ordered_as(output, self._described)

    def _export(self, places: list[torch.Tensor], outputs: list[Any]) -> None:
        copy_outputs(places, [self._ordered(output) for output in outputs])
        self._candidate.wait()

"""Orders of timing: windows of calls, what they are staged with, and what they have left."""

from __future__ import annotations

import gc
import time
from typing import Any

from kernelrl_judge.protocol.failures import Stage
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.protocol.values import decode_tree, encode_tree, leaves_of
from kernelrl_judge.runner import host_memory
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.memory import fill_fresh_memory, take_at_once

__all__ = ["Windows"]


class Windows:
    """Windows of calls of a candidate."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._dialogue = candidate.dialogue
        self._device = candidate.device
        self._inputs = candidate.inputs
        self._outputs = candidate.outputs
        self._staged: list[Any] = []
        self._collects = False
        self._places: list[list[Any]] = []
        self._events: Any = None

    # --- orders -----------------------------------------------------------------------------------------------------

    def impose(self, frame: Frame) -> None:
        """Give the candidate a state before a window."""
        self._inputs.refresh()
        self._candidate.impose(decode_tree(frame.body))
        self._candidate.wait()
        self._dialogue.answer(FrameKind.STAGED)

    def stage(self, frame: Frame) -> None:
        """Make everything that calls of a window need."""
        from kernelrl_judge.runner.windows import made_events

        self._inputs.refresh()
        order = decode_tree(frame.body)
        self._places = self._outputs.places(order["outputs"])
        self._staged = []
        if self._device == "cuda":
            from kernelrl_judge.protocol.device_memory import give_back_spare

            # Of trials; the judge's windows are as long as the memory that is free allows.
            give_back_spare()
            take_at_once([*leaves_of(order["outputs"])])
        if order["announced"]:
            self._staged = self._inputs.announced(order["inputs"])
        else:
            self._staged = [self._inputs.values(arguments, self._device) for arguments in order["inputs"]]
        self._events = made_events(self._device)
        if self._device == "cpu":
            fill_fresh_memory(None)
            host_memory.ready(order["ready"] * len(order["inputs"]))
            for place in self._all_places():
                # The pages are touched now and not on the clock.
                place.zero_()
        self._candidate.wait()
        self._dialogue.answer(FrameKind.STAGED)
        self._dialogue.expect_soon()

    def window(self, frame: Frame) -> None:
        """Make the calls that were staged, or the first of them."""
        order = decode_tree(frame.body)
        self._timed(self._staged[: order["count"]])

    def by_kernelbench(self, frame: Frame) -> None:
        """Time calls by a method of KernelBench's."""
        from kernelrl_judge.runner.kernelbench import measure

        order = decode_tree(frame.body)
        self._inputs.refresh()
        arguments = self._inputs.values(order["arguments"], self._device)
        fill_fresh_memory(None)
        model = self._candidate.model
        times_ms = self._dialogue.attempt(
            Stage.FORWARD, lambda: measure(lambda: model(*arguments), order["method"], order["trials"], self._device)
        )
        self._dialogue.answer(FrameKind.FACTS, times_ms)

    # --- a window ---------------------------------------------------------------------------------------------------

    def _timed(self, staged: list[Any]) -> None:
        started = time.perf_counter()
        # To collect garbage may run code of the candidate's: on the clock, and not between windows.
        if self._collects:
            gc.enable()
        result, called_at = self._calls(staged)
        self._collects = gc.isenabled()
        gc.disable()
        self._dialogue.tell(FrameKind.DONE)
        telemetry = {
            "calls_s": result.calls_s,
            "events_s": result.events_s(),
            "whole_s": (called_at or time.perf_counter()) - started,
        }
        self._dialogue.tell(FrameKind.FACTS, encode_tree(telemetry))

    def _calls(self, staged: list[Any]) -> tuple[Any, float | None]:
        """Make a window of calls and export every output.

        Returns:
            The window, and by this process's clock when its calls had been made; None where outputs are exported call
            by call.
        """
        from kernelrl_judge.runner.windows import window

        model, attempt = self._candidate.model, self._dialogue.attempt
        if self._device == "cpu":
            # What a call replaces is not used for the next.
            fill, places_of = self._outputs.fill, self._places

            def keep(index: int, value: Any) -> None:
                attempt(Stage.EXPORT, lambda: fill(places_of[index], [value]))

            return attempt(Stage.FORWARD, lambda: window(model, staged, self._device, keep)), None
        # What takes a while is not done on the clock.
        events, self._events = self._events, None
        places = self._all_places(len(staged))
        result = attempt(Stage.FORWARD, lambda: window(model, staged, self._device, events=events))
        self._dialogue.tell(FrameKind.CALLED)
        called_at = time.perf_counter()
        attempt(Stage.EXPORT, lambda: self._filled(places, result.outputs))
        return result, called_at

    def _all_places(self, calls: int | None = None) -> list[Any]:
        return [place for places in self._places[:calls] for place in places]

    def _filled(self, places: list[Any], values: list[Any]) -> None:
        self._outputs.fill(places, values)
        self._candidate.wait()

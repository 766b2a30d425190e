"""Orders of timing: windows of calls, what they are staged with, and what they have left."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from typing import Any

from kernelrl_judge import host_memory
from kernelrl_judge.failures import Stage
from kernelrl_judge.protocol import Frame, FrameKind
from kernelrl_judge.runner_candidate import Candidate
from kernelrl_judge.runner_dialogue import CandidateFailed
from kernelrl_judge.runner_effects import watched
from kernelrl_judge.runner_memory import fill_fresh_memory, take_at_once, tensors
from kernelrl_judge.samples import sampled
from kernelrl_judge.value_trees import decode_tree, encode_tree, leaves_of

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
        self._past: list[Any] = []
        self._collects = False
        self._staging = b""
        self._staging_order: Any = None
        self._places: list[list[Any]] = []
        self._all_places: list[Any] = []
        self._events: Any = None

    # --- orders -----------------------------------------------------------------------------------------------------

    def attach(self, frame: Frame) -> None:
        """Map the device's memory in which inputs and outputs lie from now on."""
        from kernelrl_judge.device_memory import Arena

        sizes = decode_tree(frame.body)
        self._staging = b""
        for memory, size, descriptor in zip(
            (self._inputs, self._outputs), (sizes["inputs"], sizes["outputs"]), frame.descriptors, strict=True
        ):
            if memory.arena is not None:
                memory.arena.close()
            # A kernel may work in place on its inputs. The judge reads its own of them.
            memory.arena = Arena.attach(descriptor, size, 0)
            os.close(descriptor)

    def impose(self, frame: Frame) -> None:
        """Give the candidate a state before a window."""
        self._inputs.refresh()
        self._candidate.impose(decode_tree(frame.body))
        self._candidate.wait()
        # It has been looked for when the order came, and no call was made since.
        self._dialogue.answer(FrameKind.STAGED, looks=False)

    def stage(self, frame: Frame) -> None:
        """Make everything that calls of a window need."""
        from kernelrl_judge.windows import made_events

        self._inputs.refresh()
        self._candidate.effects.forget()
        self._look_at_memory()
        again = frame.body == self._staging
        if not again:
            self._staging = frame.body
            self._staging_order = decode_tree(frame.body)
            self._places = self._outputs.places(self._staging_order["outputs"])
            self._all_places = [place for places in self._places for place in places]
        order = self._staging_order
        if not (again and order["announced"] and self._inputs.announced_again(order["inputs"], self._staged)):
            self._past = self._staged if order["announced"] else []
            self._staged = []
            if self._device == "cuda":
                from kernelrl_judge.device_memory import give_back_spare

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
            for place in self._all_places:
                # The pages are touched now and not on the clock.
                place.zero_()
        self._candidate.wait()
        # It has been looked for when the order came, and no call was made since.
        self._dialogue.answer(FrameKind.STAGED, looks=False)
        self._dialogue.expect_soon()

    def wake(self, frame: Frame) -> None:
        """Have the device turn to this process."""
        import torch

        from kernelrl_judge.windows import made_events, rehearse

        if self._candidate.mode == "gpu":
            # Without anything staged a window has none yet.
            self._events = self._events or made_events(self._device)
            torch.zeros(1, device="cuda")
            torch.cuda.synchronize()
            if frame.body:
                rehearse(self._device)
        self._dialogue.tell(FrameKind.DONE, looks=False)
        self._dialogue.expect_soon()

    def window(self, frame: Frame) -> None:
        """Make the calls that were staged, or the first of them."""
        order = decode_tree(frame.body)
        staged = self._staged[: order["count"]]
        if order["watch"] is not None:
            shares = self._candidate.shares
            seen = watched(order["watch"], staged, shares, lambda look: self._ordered(staged, look))
            self._dialogue.answer(FrameKind.FACTS, seen)
            return
        self._timed(staged)

    def give_back(self, frame: Frame) -> None:
        """Export what calls have left: inputs, state, and outputs of earlier calls."""
        order = decode_tree(frame.body)
        candidate = self._candidate
        if "kept" in order:
            found = candidate.effects.kept(order["kept"])
        else:
            found = {
                "inputs": sampled([self._staged[index] for index in order["calls"]], order.get("sampled", -1)),
                "state": candidate.state.held(order.get("held", {}), self._device),
                "shares": self._look_at_memory(on_host=self._device == "cpu"),
                "overwrites": sorted(self._outputs.returned.overwrites),
            }
        tree = self._dialogue.attempt(Stage.EXPORT, lambda: candidate.exported(None, [found]))
        self._dialogue.answer(FrameKind.RESULT, tree[1])

    def by_kernelbench(self, frame: Frame) -> None:
        """Time calls by a method of KernelBench's."""
        from kernelrl_judge.kernelbench_timing import measure

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

    def _ordered(self, staged: list[Any], look: Callable[[int, Any], None]) -> None:
        """Wait for the order of a watched window, and make it."""
        # What a listing begins with may still be under way on a device.
        self._candidate.wait()
        self._dialogue.tell(FrameKind.STAGED, looks=False)
        self._dialogue.expect_soon()
        frame = self._dialogue.next_order()
        if frame is None or frame.kind is not FrameKind.WINDOW:
            raise CandidateFailed
        self._timed(staged, look)

    def _timed(self, staged: list[Any], look: Callable[[int, Any], None] | None = None) -> None:
        started = time.perf_counter()
        # To let go of inputs, or to collect garbage, may run code of the candidate's: on the clock, and not between
        # windows.
        self._past = []
        if self._collects:
            gc.enable()
        result, called_at = self._calls(staged, look)
        self._collects = gc.isenabled()
        gc.disable()
        self._dialogue.tell(FrameKind.DONE, looks=False)
        telemetry = {
            "calls_s": result.calls_s,
            "events_s": result.events_s(),
            "whole_s": (called_at or time.perf_counter()) - started,
            "held_bytes": host_memory.held_bytes(),
        }
        self._dialogue.tell(FrameKind.FACTS, encode_tree(telemetry), looks=False)
        # Not on the clock where outputs are still there, and not among the operators that are listed.
        if self._device == "cuda" and look is None:
            self._outputs.note(result.outputs)

    def _calls(self, staged: list[Any], look: Callable[[int, Any], None] | None = None) -> tuple[Any, float | None]:
        """Make a window of calls and export every output.

        Args:
            look: called with the number of each call and its output.

        Returns:
            The window, and by this process's clock when its calls had been made; None where outputs are exported call
            by call.
        """
        from kernelrl_judge.windows import window

        model, attempt = self._candidate.model, self._dialogue.attempt
        if self._device == "cpu":
            # What a call replaces is not used for the next.
            fill, note, places_of = self._outputs.fill, self._outputs.note, self._places

            def filled(index: int, value: Any) -> None:
                fill(places_of[index], [value])

            def kept_and_noted(index: int, value: Any) -> None:
                filled(index, value)
                note([value])

            def keep(index: int, value: Any) -> None:
                attempt(Stage.EXPORT, lambda: kept_and_noted(index, value))

            def looked_at(index: int, value: Any) -> None:
                look(index, value)
                attempt(Stage.EXPORT, lambda: filled(index, value))

            kept = keep if look is None else looked_at
            return attempt(Stage.FORWARD, lambda: window(model, staged, self._device, kept)), None
        # What takes a while is not done on the clock.
        events, self._events = self._events, None
        places = self._all_places
        if len(staged) < len(self._places):
            places = [place for places in self._places[: len(staged)] for place in places]
        result = attempt(Stage.FORWARD, lambda: window(model, staged, self._device, events=events))
        if look is not None:
            for index, value in enumerate(result.outputs):
                look(index, value)
        self._dialogue.tell(FrameKind.CALLED, looks=False)
        called_at = time.perf_counter()
        attempt(Stage.EXPORT, lambda: self._filled(places, result.outputs))
        return result, called_at

    def _filled(self, places: list[Any], values: list[Any]) -> None:
        self._outputs.fill(places, values)
        self._candidate.wait()

    def _look_at_memory(self, *, on_host: bool = False) -> list[list[int]]:
        """What outputs of the window share with inputs and state."""
        width = len(self._places[0]) if self._places else 0
        given = [[*tensors(arguments)] for arguments in self._staged]
        return self._outputs.returned.look(max(1, width), given, self._candidate.state.given(), on_host=on_host)

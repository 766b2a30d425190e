"""What judge and runner say to each other, and who has the device meanwhile.

Between an order and its answer a candidate may ask for builds, and says when Triton compiles: others have the device
then. A candidate that takes long lets others go first.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from kernelrl_core.api.evaluators import DeviceLease, HeldLease
from kernelrl_judge.peer import device_facts
from kernelrl_judge.peer.computing import computing_symbols
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.protocol.failures import Failure, decode_failure
from kernelrl_judge.protocol.frames import Frame, FrameKind, ProtocolError
from kernelrl_judge.protocol.limits import LIMITS

__all__ = ["CandidateFailed", "Dialogue", "patience_s"]

_PATIENCE_S = 0.3
_LOOK_AGAIN_S = 0.1
_IDLE_WITHIN_S = 0.3
_MAY_BUILD = (FrameKind.LOADED, FrameKind.READY, FrameKind.RESULT, FrameKind.RECORDED)


class CandidateFailed(Exception):
    """The runner says that its candidate raised."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@attrs.define(eq=False)
class Dialogue:
    """With the runner of one candidate."""

    _runner: Runner
    _build: Callable[[bytes], tuple[bytes, list[int]]]
    """Answers an order for the build service, with descriptors of what was built."""
    _device: str
    _turns: DeviceLease | None
    """On the device; None if it is already this judge's alone."""
    _slow: Callable[[], None]
    """Called when a candidate on the processor keeps the judge waiting."""
    _profile: dict[str, Any]
    """To which is added what builds tell."""
    _holding: HeldLease | None = None
    _builds: int = 0
    orders: list[bytes] = attrs.field(factory=list)
    """What the candidate had built."""
    build_s: float = 0.0
    waited_s: float = 0.0
    """For turns on the device."""

    def slow(self) -> float | None:
        """The candidate keeps its judge waiting; returns in how many seconds to look again."""
        if self._device == "cpu":
            self._runner.step_back()
            self._slow()
            return None
        turn = self._holding
        if turn is None or not turn.keeps_timed_waiting():
            return _LOOK_AGAIN_S
        started = time.monotonic()
        with self._runner.suspended():
            # Others who are inside end soon, and nobody new comes in. What the candidate itself has under way on the
            # device cannot be stopped.
            if device_facts.becomes_idle(_IDLE_WITHIN_S):
                with turn.paused():
                    pass
            else:
                turn.say_slow()
        waited_s = time.monotonic() - started
        self.waited_s += waited_s
        self._runner.deadline += waited_s
        return _PATIENCE_S

    def expect(self, kind: FrameKind, *, spin: bool = False) -> Frame:
        """The next frame, after all builds that the candidate asks for.

        Raises:
            CandidateFailed: it says that the candidate raised.
            ProtocolError: it is of another kind.
        """
        while True:
            frame = self._runner.receive(spin=spin)
            if frame.kind is FrameKind.BUILD and kind in _MAY_BUILD:
                self._built(frame)
                continue
            if frame.kind is FrameKind.COMPILING and kind in _MAY_BUILD:
                self._compiled()
                continue
            if frame.kind is FrameKind.FAILED and kind is not FrameKind.STARTED:
                raise CandidateFailed(decode_failure(frame.body))
            if frame.kind is not kind:
                raise ProtocolError(f"{frame.kind.name} in the place of {kind.name}")
            return frame

    @property
    def alone(self) -> bool:
        """Whether the device is this judge's alone for the whole evaluation."""
        return self._turns is None

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        if self._turns is None or (self._device == "cpu" and not alone):
            yield
            return
        started = time.monotonic()
        with self._turns.alone() if alone else self._turns.shared() as turn:
            waited_s = time.monotonic() - started
            self.waited_s += waited_s
            self._runner.deadline += waited_s
            self._holding = turn
            try:
                yield
            except BaseException:
                # What a failed candidate holds of the device is free before others have their turn.
                self._runner.end()
                raise
            finally:
                self._holding = None

    def _built(self, frame: Frame) -> None:
        self._builds += 1
        if self._builds > LIMITS.builds:
            refusal = {"error": f"denied: a candidate may build {LIMITS.builds} different extensions"}
            self._runner.send(FrameKind.BUILT, json.dumps(refusal).encode())
            return
        started = time.monotonic()
        with self._outside():
            # The compilers need no device, and others do.
            body, descriptors = self._build(frame.body)
        self.orders.append(frame.body)
        try:
            answer = json.loads(body)
            self._profile.setdefault("builds", []).append(answer.pop("facts", {}))
            self._profile.setdefault("kernels", []).extend(answer.pop("resources", []))
            self._profile.setdefault("library_symbols", []).extend(computing_symbols(answer.pop("library_symbols", [])))
            self._runner.send(FrameKind.BUILT, json.dumps(answer).encode(), descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        spent_s = time.monotonic() - started
        self.build_s += spent_s
        # Compiling has a limit of its own.
        self._runner.deadline += spent_s

    def _compiled(self) -> None:
        """Let others have the device until the runner's kernels are compiled."""
        # A runner waits for its kernels before it says so, but a candidate may say it as well.
        idle = self._device != "cuda" or self._holding is None or device_facts.becomes_idle(_IDLE_WITHIN_S)
        with self._outside() if idle else contextlib.nullcontext():
            frame = self._runner.receive()
            ended = time.monotonic()
        waited_s = time.monotonic() - ended
        self.waited_s += waited_s
        self._runner.deadline += waited_s
        if frame.kind is not FrameKind.COMPILED:
            raise ProtocolError(f"{frame.kind.name} in the place of COMPILED")
        self._runner.send(FrameKind.RESUME)

    @contextlib.contextmanager
    def _outside(self) -> Iterator[None]:
        """Let others have the device for a while."""
        turn, self._holding = self._holding, None
        try:
            with turn.paused() if turn is not None else contextlib.nullcontext():
                yield
        finally:
            # It is held again: whoever fails inside still has to leave the device.
            self._holding = turn


def patience_s(timed: bool, device: str) -> float:
    """How long a candidate may keep its judge waiting before others go first."""
    # What is timed on the processor should share it only if it hangs.
    return 5.0 if timed and device == "cpu" else _PATIENCE_S

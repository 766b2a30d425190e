"""The messages between judge and runner.

Between an order and its reply a candidate may request builds, and reports that Triton compiles: others use the device
meanwhile.
"""

from __future__ import annotations

import os
import time

import attrs

from kernelrl_judge.peer.builds import CandidateBuilds
from kernelrl_judge.peer.lease import CandidateLease
from kernelrl_judge.peer.process import RunnerProcess
from kernelrl_judge.protocol.failures import Failure, decode_failure
from kernelrl_judge.protocol.frames import Frame, FrameKind, ProtocolError

__all__ = ["CandidateRaised", "RunnerChannel"]

_MAY_BUILD = (FrameKind.LOADED, FrameKind.READY, FrameKind.RESULT, FrameKind.RECORDED)
"""Replies before which a candidate may build extensions and compile kernels."""


class CandidateRaised(Exception):
    """The runner reports an exception of its candidate."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@attrs.define(eq=False)
class RunnerChannel:
    """Orders to the runner of one candidate, and its replies."""

    _process: RunnerProcess
    _lease: CandidateLease
    _builds: CandidateBuilds

    def order(self, kind: FrameKind, body: bytes = b"", *, reply: FrameKind, spin: bool = False) -> Frame:
        """Send an order and wait for its reply; see `expect`."""
        self._process.send(kind, body)
        return self.expect(reply, spin=spin)

    def expect(self, kind: FrameKind, *, spin: bool = False) -> Frame:
        """The next frame, after all builds that the candidate requests.

        Args:
            spin: see `RunnerProcess.receive`.

        Raises:
            CandidateRaised: the candidate raised an exception.
            ProtocolError: the frame is of another kind.
            What `RunnerProcess.receive` raises.
        """
        while True:
            frame = self._process.receive(self._lease.let_others_first, spin=spin)
            if frame.kind is FrameKind.BUILD and kind in _MAY_BUILD:
                self._build(frame)
                continue
            if frame.kind is FrameKind.COMPILING and kind in _MAY_BUILD:
                self._wait_for_compilation()
                continue
            if frame.kind is FrameKind.FAILED:
                raise CandidateRaised(decode_failure(frame.body))
            if frame.kind is not kind:
                raise ProtocolError(f"{frame.kind.name} in the place of {kind.name}")
            return frame

    def _build(self, frame: Frame) -> None:
        # Compilers need no device.
        with self._lease.released():
            body, descriptors = self._builds.build(frame.body)
        try:
            self._process.send(FrameKind.BUILT, body, descriptors)
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _wait_for_compilation(self) -> None:
        """Let others use the device until the runner has compiled a kernel."""
        # An honest runner waits for its kernels before it reports compilation; a candidate could report it as well.
        with self._lease.released_if_idle():
            frame = self._process.receive(self._lease.let_others_first)
            compiled_at = time.monotonic()
        self._lease.add_waiting(time.monotonic() - compiled_at)
        if frame.kind is not FrameKind.COMPILED:
            raise ProtocolError(f"{frame.kind.name} in the place of COMPILED")
        self._process.send(FrameKind.RESUME)

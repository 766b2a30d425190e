"""What a runner hears from its judge and answers; the judge's side is `dialogue`."""

from __future__ import annotations

import contextlib
import linecache
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from kernelrl_judge.protocol.failures import Failure, Stage, encode_failure, lacks_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind, receive, send
from kernelrl_judge.protocol.values import encode_tree

__all__ = ["CandidateFailed", "Dialogue", "flush"]

_SPIN_S = 0.2
_MAX_CHARACTERS = 32_000
"""Of a traceback with its message."""


class CandidateFailed(BaseException):
    """The candidate failed, and the judge has been told."""


class Dialogue:
    """Orders as they come, and what is said to them.

    Args:
        path: the candidate's file.
        spins: whether to wait busily for an order that is timed.
    """

    def __init__(self, stream: socket.socket, backend: Any, path: str, *, spins: bool) -> None:
        self.stream = stream
        self.order: FrameKind | None = None
        """What is being done."""
        self.path = path
        self._backend = backend
        self._spins = spins
        self._spin_until = 0.0

    def open(self, missing: list[str]) -> None:
        """Tell the judge which layers of the sandbox are missing; before a candidate is loaded."""
        send(self.stream, FrameKind.STARTED, encode_tree(missing))

    def next_order(self, descriptors: int = 0) -> Frame | None:
        """The next order, or None when there will be none."""
        # On the processor the candidate's own threads need the time.
        until = self._spin_until if self._spins else 0.0
        while time.monotonic() < until and not select.select([self.stream], [], [], 0)[0]:
            pass
        return receive(self.stream, descriptors)

    def expect_soon(self) -> None:
        """Wait busily for an order that is timed: being woken up would count as the candidate's time."""
        self._spin_until = time.monotonic() + _SPIN_S

    def answer(self, kind: FrameKind, *body: Any) -> None:
        """Send values."""
        flush()
        self.tell(kind, b"".join(map(encode_tree, body)))

    def tell(self, kind: FrameKind, body: bytes = b"") -> None:
        """Send a frame."""
        send(self.stream, kind, body)

    def attempt(self, stage: Stage, work: Callable[[], Any]) -> Any:
        """Do what may fail for what the candidate did.

        Raises:
            CandidateFailed: it has.
        """
        try:
            return work()
        except CandidateFailed:
            raise
        except BaseException as error:
            kind, name, text = _described(error, self._backend, self.path)
            flush()
            self.tell(FrameKind.FAILED, encode_failure(Failure(stage, kind, name, text)))
            raise CandidateFailed from None


def flush() -> None:
    """Write out what was printed."""
    # What the candidate printed must be in the log before the judge ends this process.
    with contextlib.suppress(BaseException):
        sys.stdout.flush()


def _described(error: BaseException, backend: Any, path: str) -> tuple[str, str, str]:
    """Kind, class name and text of an exception; survives classes that misbehave when they are described."""
    kind = "error"
    with contextlib.suppress(BaseException):
        kind = "compile" if _is_build_error(error) else str(backend.classify(error))
    name = str(type.__getattribute__(type(error), "__name__"))[:200]
    frames = ""
    with contextlib.suppress(BaseException):
        linecache.checkcache()
        shown = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        frames = "".join(f"  line {frame.lineno}, in {frame.name}: {frame.line}\n" for frame in shown[-8:])
    text = ""
    with contextlib.suppress(BaseException):
        text = str(error)
        if isinstance(error, SyntaxError) and error.lineno:
            text = f"{error.msg} (line {error.lineno})"
    if type(text) is not str:
        text = ""
    if kind != "compile" and (isinstance(error, MemoryError) or lacks_memory(text)):
        kind = "memory"
        if "nvmlInit" in text:
            text = "CUDA out of memory"
    cause = error.__cause__
    with contextlib.suppress(BaseException):
        if cause is not None and str(cause) not in text:
            text = f"{text}\ncaused by {type(cause).__name__}: {cause}"
    whole = f"{frames}{name}: {text}"
    if len(whole) > _MAX_CHARACTERS:
        half = _MAX_CHARACTERS // 2
        whole = f"{whole[:half]}\n… {len(whole) - 2 * half} characters left out …\n{whole[-half:]}"
    return kind, name, whole


def _is_build_error(error: BaseException) -> bool:
    builds = sys.modules.get("kernelrl_judge.runner.builds")
    return builds is not None and isinstance(error, builds.BuildError | builds.ToolDenied)

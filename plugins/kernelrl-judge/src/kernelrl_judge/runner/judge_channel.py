"""The runner's end of the channel between judge and runner: orders, replies, and the report of a failure."""

from __future__ import annotations

import contextlib
import linecache
import select
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from kernelrl_judge.protocol.failures import Failure, Phase, encode_failure, lacks_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind, receive, send
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.runner.own_package import folder_of

__all__ = ["JUDGE_CLOSED", "FailureReported", "JudgeChannel", "flush"]

_Result = TypeVar("_Result")

JUDGE_CLOSED = 71
"""Exit code of a runner whose judge closed the channel instead of replying."""
_SPIN_S = 0.2
_MAX_NAME_CHARACTERS = 200
_MAX_FRAMES = 8
_MAX_CHARACTERS = 32_000
"""Maximum length of a traceback with its message."""


class FailureReported(BaseException):
    """The candidate failed, and the judge has the report."""


class JudgeChannel:
    """Receives the judge's orders and sends the replies.

    Args:
        path: the candidate's file.
        spins: wait busily for an order that is timed.
    """

    def __init__(self, stream: socket.socket, backend: Any, path: str, *, spins: bool) -> None:
        self.stream = stream
        self.order: FrameKind | None = None
        """The current order."""
        self.path = path
        self._backend = backend
        self._spins = spins
        self._spin_until = 0.0

    def open(self, missing_layers: list[str]) -> None:
        """Report the sandbox's missing layers, before a candidate is loaded."""
        send(self.stream, FrameKind.STARTED, encode_tree(missing_layers))

    def next_order(self, descriptors: int = 0) -> Frame | None:
        """The next order, or None when there will be none."""
        # On the CPU the candidate's own threads need the time.
        until = self._spin_until if self._spins else 0.0
        while time.monotonic() < until and not select.select([self.stream], [], [], 0)[0]:
            pass
        return receive(self.stream, descriptors)

    def expect_soon(self) -> None:
        """Wait busily for the next order, which is timed: the time to wake up would count as the candidate's time."""
        self._spin_until = time.monotonic() + _SPIN_S

    def reply(self, kind: FrameKind, body: bytes = b"") -> None:
        """Write out the candidate's prints and send a frame."""
        flush()
        self.send(kind, body)

    def send(self, kind: FrameKind, body: bytes = b"") -> None:
        """Send a frame without delay, within a window."""
        send(self.stream, kind, body)

    def attempt(self, phase: Phase, work: Callable[[], _Result]) -> _Result:
        """Do work that may fail because of the candidate.

        Raises:
            FailureReported: it failed.
        """
        try:
            return work()
        except FailureReported:
            raise
        except BaseException as error:
            failure = _described(error, phase, self._backend, self.path)
            self.reply(FrameKind.FAILED, encode_failure(failure))
            raise FailureReported from None


def flush() -> None:
    """Write out the candidate's prints: they must be in the log before the judge ends this process."""
    with contextlib.suppress(BaseException):
        sys.stdout.flush()


def _described(error: BaseException, phase: Phase, backend: Any, path: str) -> Failure:
    """An exception as a failure. Also works for exceptions whose methods fail."""
    kind = "error"
    with contextlib.suppress(BaseException):
        kind = "compile" if _is_build_error(error) else str(backend.classify(error))
    name = str(type.__getattribute__(type(error), "__name__"))[:_MAX_NAME_CHARACTERS]
    lines = _lines_of_candidate(error, path)
    message = _message(error)
    if kind != "compile" and (isinstance(error, MemoryError) or lacks_memory(message)):
        kind = "memory"
        if "nvmlInit" in message:
            message = "CUDA out of memory"
    message = _with_cause(message, error)
    return Failure(phase, kind, name, _shortened(f"{lines}{name}: {message}"))


def _lines_of_candidate(error: BaseException, path: str) -> str:
    """The lines of a traceback that are in the candidate's file, or in its package."""
    with contextlib.suppress(BaseException):
        linecache.checkcache()
        package = f"{folder_of(path)}/"
        frames = [
            frame
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == path or frame.filename.startswith(package)
        ]
        lines = []
        for frame in frames[-_MAX_FRAMES:]:
            file = "" if frame.filename == path else f"{frame.filename.removeprefix(package)} "
            lines.append(f"  {file}line {frame.lineno}, in {frame.name}: {frame.line}\n")
        return "".join(lines)
    return ""


def _message(error: BaseException) -> str:
    text = ""
    with contextlib.suppress(BaseException):
        text = str(error)
        if isinstance(error, SyntaxError) and error.lineno:
            text = f"{error.msg} (line {error.lineno})"
    # `str` may have returned a subclass of `str`, whose methods are the candidate's.
    return text if type(text) is str else ""


def _with_cause(message: str, error: BaseException) -> str:
    cause = error.__cause__
    with contextlib.suppress(BaseException):
        if cause is not None and str(cause) not in message:
            return f"{message}\ncaused by {type(cause).__name__}: {cause}"
    return message


def _shortened(text: str) -> str:
    if len(text) <= _MAX_CHARACTERS:
        return text
    half = _MAX_CHARACTERS // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters omitted …\n{text[-half:]}"


def _is_build_error(error: BaseException) -> bool:
    # Neither module is imported here: without them there is no such error.
    build_errors = sys.modules.get("kernelrl_build.errors")
    denied_tools = sys.modules.get("kernelrl_judge.runner.denied_tools")
    if build_errors is not None and isinstance(error, build_errors.BuildError):
        return True
    return denied_tools is not None and isinstance(error, denied_tools.ToolDenied)

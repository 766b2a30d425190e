"""Wall-clock limit of a contract test."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["TookTooLong", "wall_clock_limit"]


class TookTooLong(BaseException):
    """A test did not end within its limit. No `Exception`, because plugin code catches those."""


@contextmanager
def wall_clock_limit(seconds: float) -> Iterator[None]:
    """Interrupt the code within this context after `seconds`. Without effect outside of the main thread.

    A regular expression and a sleep are interrupted, too. Native code that blocks the interpreter is not: after twice
    the limit the process ends with the position of each thread on standard error.

    Raises:
        TookTooLong: the limit is reached.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    watched = _stderr_has_file()
    if watched:
        faulthandler.dump_traceback_later(2 * seconds, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if watched:
            faulthandler.cancel_dump_traceback_later()


def _stderr_has_file() -> bool:
    try:
        sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # replaced, as in a test
        return False
    return True

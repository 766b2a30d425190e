"""Calls in which CPU threads, or the programs of an interpreted launch, work in another order than usual.

With one thread, or with programs that run one after another, shared data never has the wrong state.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["is_reordered", "most_different", "reordered"]

_PAUSED_CALLS, _PLAIN_CALLS = 16, 4
"""Repeated calls in a row with the same threads: with pauses, and without."""
_THREADS = (7, 4, 16, 3, 2)
"""Threads of repeated calls, one number after the other."""
_PAUSE_SIGNAL = 62
"""Signal of a pause, and its length in microseconds: `usleep` handles the signal and takes its number."""
_BETWEEN_PAUSES_NS = (200_000, 1_000_000)
"""Shortest and longest time between the pauses of a thread."""
_MONOTONIC, _TO_THREAD = 1, 4
"""`CLOCK_MONOTONIC`, and `SIGEV_THREAD_ID`: a timer signals one thread."""
_REPEATED_S = 0.6
"""CPU time of repeated calls."""
_MAX_REPEATED_S = 4.0
"""Wall time of repeated calls, on a machine that is busy with other programs."""
_ROUNDS = 25
"""Numbers of threads that are tried, at most."""
_CERTAIN = 0.02
"""Difference that no order of sums explains."""
_OPENMP = ("libgomp.so.1", "libomp.so", "libomp.so.5", "libiomp5.so")
"""Libraries of OpenMP that an extension may use. Torch may have another one."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.signal.argtypes, _libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
_now = False


def is_reordered() -> bool:
    """Whether the current call is reordered."""
    return _now


@contextlib.contextmanager
def reordered(*, threads: int) -> Iterator[None]:
    """Reorder the calls within the context: programs that run one after another run in a random order.

    Args:
        threads: number of threads of OpenMP; 0: as many as before.
    """
    global _now
    threads_before = torch.get_num_threads()
    libraries = _openmp_libraries() if threads else []
    try:
        _now = True
        if threads:
            torch.set_num_threads(threads)
        for library, _ in libraries:
            library.omp_set_num_threads(threads)
        yield
    finally:
        _now = False
        if threads:
            torch.set_num_threads(threads_before)
        for library, count in libraries:
            library.omp_set_num_threads(count)


def most_different(call: Callable[[], Any], output: Any) -> Any:
    """Make a call with other numbers of threads for a while; returns the output that differs most from that of one
    thread.

    Threads that share data without order make a wrong output in few of many calls.

    Args:
        output: of the same call; nothing is done if it is no tensor.
    """
    if type(output) is not torch.Tensor or not output.numel():
        return output
    started, ran_before = time.monotonic(), time.process_time()
    worst = output.clone()
    with reordered(threads=1):
        ordered = call()
    if not _is_like(ordered, worst):
        return ordered
    ordered = ordered.clone()
    # The given output may be wrong by chance, and all others right.
    largest = _difference(ordered, worst)
    for other in _outputs(call):
        if not _is_like(other, worst):
            return other
        found = _difference(ordered, other)
        if found > largest:
            largest, worst = found, other.clone()
        ran_s, spent_s = time.process_time() - ran_before, time.monotonic() - started
        if largest > _CERTAIN or ran_s > _REPEATED_S or spent_s > _MAX_REPEATED_S:
            break
    return worst


def _is_like(other: Any, output: torch.Tensor) -> bool:
    return type(other) is torch.Tensor and other.shape == output.shape and other.dtype is output.dtype


def _outputs(call: Callable[[], Any]) -> Iterator[Any]:
    """Outputs of calls with several numbers of threads, with pauses and without."""
    for threads in itertools.islice(itertools.cycle(_THREADS), _ROUNDS):
        with reordered(threads=threads):
            # The first call starts the threads, one after another.
            yield from (call() for _ in range(_PLAIN_CALLS))
            with _paused_threads():
                yield from (call() for _ in range(_PAUSED_CALLS))


@contextlib.contextmanager
def _paused_threads() -> Iterator[None]:
    """Pause each thread of this process again and again, wherever it is.

    Threads that work for less than a time slice seldom meet on a busy machine: each ends before the next one begins.
    """
    timers: list[Any] = []
    try:
        with contextlib.suppress(OSError, AttributeError):  # a C library or a system without such timers
            _libc.signal(_PAUSE_SIGNAL, ctypes.cast(_libc.usleep, ctypes.c_void_p))
            for thread in map(int, os.listdir("/proc/self/task")):
                timers.append(_timer_of(thread))
        yield
    finally:
        for timer in timers:
            _libc.timer_delete(timer)
        if timers:
            # One may be pending, and would end the process.
            _libc.signal(_PAUSE_SIGNAL, int(signal.SIG_IGN))


class _Event(ctypes.Structure):
    """`struct sigevent`."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("rest", ctypes.c_char * 44),
    )


class _Times(ctypes.Structure):
    """`struct itimerspec`."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


def _timer_of(thread: int) -> Any:
    """A started timer that pauses a thread.

    Raises:
        OSError: there can be no more timers.
    """
    timer, event = ctypes.c_void_p(), _Event(None, _PAUSE_SIGNAL, _TO_THREAD, thread, b"")
    if _libc.timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)):
        raise OSError(ctypes.get_errno(), "timer_create")
    shortest, longest = _BETWEEN_PAUSES_NS
    times = _Times(0, random.randint(shortest, longest), 0, random.randint(1, longest))
    _libc.timer_settime(timer, 0, ctypes.byref(times), None)
    return timer


def _difference(first: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference of two outputs, as a share of the largest number; infinite where one is not finite."""
    if torch.equal(first, other):
        return 0.0
    if not first.is_floating_point():
        return math.inf
    want, got = first.double(), other.double()
    differs = (want != got) & ~(want.isnan() & got.isnan())
    if not bool(differs.any()):
        return 0.0
    if not bool((want.isfinite() & got.isfinite())[differs].all()):
        return math.inf
    size = float(torch.where(want.isfinite(), want, 0.0).abs().max())
    return float((got - want)[differs].abs().max()) / max(size, 1e-30)


def _openmp_libraries() -> list[tuple[Any, int]]:
    """Loaded libraries of OpenMP, and the number of threads of each."""
    found = []
    for name in _OPENMP:
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(name, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
            found.append((library, int(library.omp_get_max_threads())))
    return found

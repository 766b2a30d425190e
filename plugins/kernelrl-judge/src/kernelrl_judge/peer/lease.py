"""The device lease of one evaluation: held while its candidate needs the device, released while it does not.

A candidate that takes long lets timed work of others go first.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

import attrs

from kernelrl_core.api.evaluators import DeviceLease, HeldLease
from kernelrl_judge.device.facts import becomes_idle
from kernelrl_judge.peer.process import RunnerProcess

__all__ = ["CandidateLease", "patience_s"]

_PATIENCE_S = 0.3
_TIMED_CPU_PATIENCE_S = 5.0
"""A candidate that is timed on the CPU shares its core only if it hangs."""
_CHECK_AGAIN_S = 0.1
_BUSY_S = 3.0
"""Until a candidate whose kernels run is stopped again: to stop it does not free the device."""
_IDLE_WITHIN_S = 0.3


@attrs.define(eq=False)
class CandidateLease:
    """The device lease of one candidate."""

    _process: RunnerProcess
    _leases: DeviceLease | None
    """None: this judge holds the device exclusively for the whole evaluation."""
    _device: str
    _report_slow: Callable[[], None]
    """Called when a candidate on the CPU keeps the judge waiting: another judge could work meanwhile."""
    waited_s: float = 0.0
    """Time that the evaluation waited for the device."""
    _held: HeldLease | None = None

    @property
    def is_exclusive(self) -> bool:
        """Whether this judge holds the device exclusively for the whole evaluation."""
        return self._leases is None

    @contextlib.contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold the device inside the `with` block.

        Args:
            alone: exclusively, for timed work; otherwise shared. On the CPU only timed work needs a lease.
        """
        if self._leases is None or (self._device == "cpu" and not alone):
            yield
            return
        started = time.monotonic()
        with self._leases.alone() if alone else self._leases.shared() as held:
            self.add_waiting(time.monotonic() - started)
            self._held = held
            try:
                yield
            except BaseException:
                # The device memory of a failed candidate is free before others get the lease.
                self._process.end()
                raise
            finally:
                self._held = None

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let others use the device inside the `with` block."""
        held, self._held = self._held, None
        try:
            with held.paused() if held is not None else contextlib.nullcontext():
                yield
        finally:
            # Held again also after an exception: the caller still leaves the device in order.
            self._held = held

    @contextlib.contextmanager
    def released_if_idle(self) -> Iterator[None]:
        """As `released`, unless kernels of the candidate still run: they would disturb timed work of others."""
        is_idle = self._device != "cuda" or self._held is None or becomes_idle(_IDLE_WITHIN_S)
        with self.released() if is_idle else contextlib.nullcontext():
            yield

    def let_others_first(self) -> float | None:
        """Let others work while the candidate keeps its judge waiting.

        Returns:
            Seconds until the next call of this method, or None for none.
        """
        if self._device == "cpu":
            self._process.run_in_background()
            self._report_slow()
            return None
        held = self._held
        if held is None or not held.keeps_timed_waiting():
            return _CHECK_AGAIN_S
        started = time.monotonic()
        with self._process.suspended():
            # Other shared holders end soon, and no new one is admitted. Kernels of the candidate that run already
            # cannot be stopped.
            is_idle = becomes_idle(_IDLE_WITHIN_S)
            if is_idle:
                with held.paused():
                    pass
            else:
                held.say_slow()
        waited_s = time.monotonic() - started
        self.add_waiting(waited_s)
        self._process.deadline += waited_s
        return _PATIENCE_S if is_idle else _BUSY_S

    def add_waiting(self, waited_s: float) -> None:
        """Count time as waiting for the device."""
        self.waited_s += waited_s


def patience_s(device: str, *, timed: bool) -> float:
    """Time that one reply of a candidate may take before others go first."""
    return _TIMED_CPU_PATIENCE_S if timed and device == "cpu" else _PATIENCE_S

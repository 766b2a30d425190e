"""Probe `order`: races between threads of the CPU, and between programs of Triton's interpreter."""

from __future__ import annotations

import re

import attrs

from kernelrl_judge.probes.probe import DirectCall, Probe
from kernelrl_judge.protocol.call import Call

__all__ = ["MANY_THREADS", "OrderProbe"]

MANY_THREADS = 7
"""Does not divide most sizes."""
_THREADS = (0, 2, MANY_THREADS, 3, 5)
"""Threads of one trial after the other; 0: as many as the backend sets."""


_STARTS_THREADS = re.compile(r"omp|thread|parallel|async|execution::|tbb|std::par")
"""What a source contains that starts threads."""


class OrderProbe(Probe):
    """The last call has more threads, or programs in random order. On the CPU other trials have more threads as well,
    and the last one is repeated: threads that share data differ in few calls only.

    Args:
        mode: of the zygote.
        source: of the candidate; empty: the last call is not repeated.
    """

    name = "order"

    def __init__(self, mode: str, source: str) -> None:
        self._mode = mode
        self._starts_threads = mode == "cpu" and _STARTS_THREADS.search(source) is not None

    def order(self, order: Call, call: DirectCall) -> Call:
        return attrs.evolve(order, threads=self._threads(call), repeats=self._repeats(call))

    def _repeats(self, call: DirectCall) -> bool:
        # Calls that change their inputs or a state differ without threads.
        reference = call.reference
        is_stateless = not reference.changed_state and not reference.facts.mutates_inputs
        is_last_trial = call.is_trial and call.is_last and call.threads is None
        return self._starts_threads and is_last_trial and is_stateless

    def _threads(self, call: DirectCall) -> int:
        if call.device != "cpu":
            return 0
        if call.threads is not None:
            return call.threads
        if call.is_last:
            return MANY_THREADS
        return _THREADS[(call.number - 1) % len(_THREADS)] if self._mode == "cpu" else 0

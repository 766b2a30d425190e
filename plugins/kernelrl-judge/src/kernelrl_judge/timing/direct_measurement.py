"""Times of direct calls: on the CPU, and on a GPU where calls cannot be recorded.

A window is a series of calls on inputs of their own, by the judge's clock, from the order until the runner reports the
end of the calls. A round has four windows: n and n/2 calls of the candidate, and of the reference in the judge's own
process, on the same new inputs, in random order. The constant cost of a window is the difference between two windows of
n/2 calls and one of n calls, in the median over the rounds. All outputs are compared with those of the reference. If a
candidate makes over four times as many calls as the reference, that many are compared, chosen at random.

On the CPU each output is copied to its place before the next call, on either side; the time of that copy in the judge's
process is subtracted from both. The runner is stopped while its inputs are written and while the reference is timed, so
that it can neither start early nor disturb the reference. A window takes at least its CPU time divided by the number of
threads that both sides have.

Other programs may keep threads of a window waiting for a processor. On the CPU the system reports that time, and it
does not count. Where it was a large share and the speedup remains uncertain, the windows are made once more; then there
is no speedup.
"""

from __future__ import annotations

import copy
import math
import os
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import TimingFacts
from kernelrl_judge.findings import finding
from kernelrl_judge.peer.memory import ArenaExchange
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.direct_trials import is_stored_output
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.orders import StageOrder, WindowOrder
from kernelrl_judge.protocol.trees import leaves_bytes, mapped, message_bytes, places, tensors
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.task.comparison import compare_bytes, tolerance
from kernelrl_judge.task.drawn_parameters import ParameterDraws
from kernelrl_judge.task.input_indices import FIRST_TIMED
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.torch_settings import settings_of_task
from kernelrl_judge.timed_calls import host_memory
from kernelrl_judge.timed_calls.outputs import copy_outputs
from kernelrl_judge.timed_calls.window import call_window
from kernelrl_judge.timing.statistics import BYTES_OF_TENSOR, MAX_TENSORS, NotTimed, Timing, WrongWindow, make_rounds
from kernelrl_sandbox.freezing import longest_wait_s, total_s, waited_s

__all__ = [
    "DirectMeasurement",
    "TimedWindow",
    "constant_cost_s",
    "counted_window",
    "widened",
]

_SETTLED_SHARE = 0.012
"""Share of a median within which it counts as known."""
_BUDGET_S = {"cuda": 0.4, "cpu": 1.0}
_WINDOW_S = 8e-3
"""Intended length of a window of n calls: half of it is still long compared with delays of the scheduler."""
_MAX_CALLS = 256
_MAX_WINDOW_BYTES = {"cuda": 4 << 30, "cpu": 1 << 30}
"""Inputs and outputs of a window."""
_OTHER_CALLS = 3
"""Number of further calls of the candidate that are compared, as a multiple of the calls of the reference's window."""
_MAX_CONSTANT_SHARE = 0.1
"""Share of a window that may be subtracted as its constant cost."""
_MIN_CALL_SHARE = 0.2
"""Share of a call's time that is left, at least, when the copy of its output is subtracted."""
_MAX_CPU_SHARE = 1.05
"""CPU time of a window for each of its threads, as a share of its length."""


_BUSY_SHARE = 0.1
"""Share of the time of the windows that threads wait, above which other programs disturb them."""
_DISTURBANCE = 0.25
"""Change of the ends of an interval where threads wait all the time, as a share of them."""
_MAX_SPREAD = 3.0
"""Largest ratio of the ends of the interval of a speedup that was measured beside other programs."""
_ATTEMPTS = 2


@attrs.frozen
class _WindowTimes:
    """Seconds of one window of each side."""

    candidate_s: float
    baseline_s: float
    waited_s: float
    """Time of both windows in which a thread waited for a processor. It does not count in the others."""


@attrs.frozen
class _Stopwatch:
    """Times of this process at the start of a window."""

    at: float
    """On the clock `time.perf_counter`."""
    waited_s: dict[int, float]

    @classmethod
    def start(cls) -> _Stopwatch:
        waited_before_s = waited_s([os.getpid()])
        return cls(time.perf_counter(), waited_before_s)

    def waiting_s(self) -> float:
        """Time since then in which a thread of this process waited for a processor."""
        return longest_wait_s(self.waited_s, waited_s([os.getpid()]))


@attrs.frozen
class _CallCounts:
    """Calls in a window of each side."""

    candidate: int
    baseline: int

    def half(self) -> _CallCounts:
        return _CallCounts(self.candidate // 2, self.baseline // 2)


@attrs.frozen
class _DirectRound:
    """Windows of n calls and of n/2 calls."""

    full: _WindowTimes
    half: _WindowTimes


class DirectMeasurement:
    """Times a candidate that passed its trials: `run` with the device held exclusively, then `result`."""

    def __init__(self, session: RunnerSession, draws: ParameterDraws) -> None:
        reference = draws.reference
        self._draws = draws
        self._session = session
        self._process = session.process
        self._channel = session.channel
        self._exchange = session.exchange
        self._reference = reference
        self._device = reference.device
        self._limit = tolerance(reference.settings)
        # Not derived from the seeds of the inputs: a candidate must not know the order of the windows.
        self._random: random.Random = random.SystemRandom()
        self._next_input = FIRST_TIMED
        self._judge_outputs: dict[int, _JudgeOutputs] = {}
        self._calls = _CallCounts(2, 2)
        self._rounds: list[_DirectRound] = []
        self._copies_s: list[float] = []
        # Inputs in device memory that cannot be shared are copied to the GPU by the runner before the clock runs.
        self._inputs_come_late = self._device == "cpu" or isinstance(self._exchange, ArenaExchange)
        first, like = reference.inputs(FIRST_TIMED), reference.like
        n_tensors = max(len(tensors([first, like])), message_bytes([first, like]) // BYTES_OF_TENSOR)
        moved_bytes = leaves_bytes(first) + leaves_bytes(like)
        largest_input_bytes = max((tensor.nbytes for tensor in tensors(first)), default=0)
        # A call may allocate its outputs, and one tensor between them and its inputs.
        self._allocated_bytes = [largest_input_bytes, *(tensor.nbytes for tensor in tensors(like))]
        by_memory = _MAX_WINDOW_BYTES[self._device] // max(1, moved_bytes)
        by_message = MAX_TENSORS // (n_tensors + 2)
        self._max_calls = max(2, min(_MAX_CALLS, by_memory, by_message))

    def run(self, max_rounds: int) -> None:
        """Make the windows.

        Raises:
            WrongWindow: an output of a timed call is wrong.
            NotTimed: other programs keep the processors busy.
            What `RunnerChannel.expect` raises.
        """
        self._draws.draw()
        self._find_lengths()
        for _ in range(_ATTEMPTS):
            self._rounds = []
            make_rounds(
                lambda: self._rounds.append(self._make_round()),
                self._times_until_now,
                most=max_rounds,
                budget_s=_BUDGET_S[self._device],
                share=_SETTLED_SHARE,
            )
            share = self._waiting_share()
            low, high = self.result().speedup_ci
            if share < _BUSY_SHARE or high <= _MAX_SPREAD * low:
                return
        raise NotTimed(
            f"other programs keep the processors busy: timed calls waited {100 * share:.0f} % of the time, and the "
            f"speedup is between {low:.2g} and {high:.2g}"
        )

    def release(self) -> None:
        """Drop inputs and outputs: references to this object may live until garbage is collected."""
        self._judge_outputs.clear()

    def result(self) -> Timing:
        """Medians and speedup."""
        candidate_us = self._per_call_us(
            self._calls.candidate, [(made.full.candidate_s, made.half.candidate_s) for made in self._rounds]
        )
        baseline_us = self._per_call_us(
            self._calls.baseline, [(made.full.baseline_s, made.half.baseline_s) for made in self._rounds]
        )
        share = self._waiting_share()
        facts = TimingFacts(
            method="calls",
            rounds=len(self._rounds),
            calls_per_window=self._calls.candidate,
            baseline_calls_per_window=self._calls.baseline,
            waiting_share=round(share, 3),
        )
        timing = Timing.of(candidate_us, baseline_us, facts)
        return attrs.evolve(timing, speedup_ci=widened(timing.speedup_ci, share))

    def _times_until_now(self) -> list[list[float]]:
        """Seconds of the windows of n calls, of each side."""
        candidate_s = [made.full.candidate_s for made in self._rounds]
        baseline_s = [made.full.baseline_s for made in self._rounds]
        return [candidate_s, baseline_s]

    def _waiting_share(self) -> float:
        """Share of the time of the windows in which threads waited for a processor."""
        windows = [window for made in self._rounds for window in (made.full, made.half)]
        waited = sum(window.waited_s for window in windows)
        counted = sum(window.candidate_s + window.baseline_s for window in windows)
        return waited / (waited + counted)

    def _find_lengths(self) -> None:
        """Increase the calls of each side until its windows are long enough."""
        while True:
            windows = self._make_windows(self._calls)
            grown = _CallCounts(
                self._grown(self._calls.candidate, windows.candidate_s),
                self._grown(self._calls.baseline, windows.baseline_s),
            )
            is_long_enough = (
                grown.candidate <= 1.2 * self._calls.candidate and grown.baseline <= 1.2 * self._calls.baseline
            )
            if is_long_enough:
                return
            self._calls = grown

    def _grown(self, calls: int, window_s: float) -> int:
        """Number of calls for a window of the intended length, at most 16 times as many; even."""
        factor = min(_WINDOW_S / max(window_s, 1e-6), 16)
        wanted = min(self._max_calls, 2 * math.ceil(calls * factor / 2))
        return max(calls, wanted - wanted % 2)

    def _make_round(self) -> _DirectRound:
        if self._random.random() < 0.5:
            full = self._make_windows(self._calls)
            half = self._make_windows(self._calls.half())
        else:
            half = self._make_windows(self._calls.half())
            full = self._make_windows(self._calls)
        if self._device == "cpu":
            self._copies_s.append(self._outputs_for(self._calls.baseline).copy_s())
        return _DirectRound(full, half)

    def _per_call_us(self, calls: int, windows_s: list[tuple[float, float]]) -> list[float]:
        """Time of one call in each round, in microseconds.

        Args:
            calls: of a window.
            windows_s: seconds of the window of all and of half of the calls, in each round.
        """
        constant_s = constant_cost_s(windows_s, calls / (calls // 2))
        copy_s = min(self._copies_s, default=0.0)
        calls_s = [max(full_s - constant_s, 0.0) / calls for full_s, _ in windows_s]
        return [max(call_s - copy_s, _MIN_CALL_SHARE * call_s, 1e-9) * 1e6 for call_s in calls_s]

    def _make_windows(self, calls: _CallCounts) -> _WindowTimes:
        """One window of each side, in random order, on the same new inputs and with the same new parameters."""
        self._draws.draw_for_window()
        inputs = self._reference.many_inputs(self._next_input, max(calls.candidate, calls.baseline))
        self._next_input += len(inputs)
        candidate_inputs, baseline_inputs = inputs[: calls.candidate], inputs[: calls.baseline]
        outputs = self._stage(candidate_inputs)
        if self._random.random() < 0.5:
            candidate, actual = self._candidate_window(candidate_inputs, outputs)
            baseline, expected = self._baseline_window(baseline_inputs)
        else:
            baseline, expected = self._baseline_window(baseline_inputs)
            candidate, actual = self._candidate_window(candidate_inputs, outputs)
        self._compare(candidate_inputs, actual, expected)
        return _WindowTimes(candidate.seconds, baseline.seconds, waited_s=candidate.waited_s + baseline.waited_s)

    def _stage(self, inputs: list[list[Any]]) -> list[Any]:
        """Have the runner prepare a window; returns the places of its outputs."""
        outputs, output_bytes = places(self._reference.like, len(inputs), self._device)
        state = self._reference.imposed_state
        if state:
            # The calls start with the parameters and the state of the reference's calls.
            body = encode_tree(self._exchange.share(state))
            self._channel.order(FrameKind.IMPOSE, body, reply=FrameKind.STAGED)
        if self._inputs_come_late:
            tree = self._exchange.announce(inputs, output_bytes)
        else:
            self._exchange.make_room(output_bytes)
            tree = self._exchange.share(inputs)
        order = StageOrder(inputs=tree, outputs=outputs, announced=self._inputs_come_late, ready=self._allocated_bytes)
        self._channel.order(FrameKind.STAGE, order.encoded(), reply=FrameKind.STAGED)
        return outputs

    def _candidate_window(self, inputs: list[list[Any]], places: list[Any]) -> tuple[TimedWindow, list[Any]]:
        """A window of the candidate, and its outputs."""
        window = TimedWindow(self._gpu_window_s(inputs)) if self._device == "cuda" else self._cpu_window(inputs)
        # Read before a candidate could make up for work that it has not done.
        outputs = [self._exchange.collect(self._reference.like, place) for place in places]
        self._channel.expect(FrameKind.FACTS)
        if "late_writes" in self._reference.settings.probes:
            index = self._random.randrange(len(places))
            again = self._exchange.collect(self._reference.like, places[index])
            changed = compare_bytes(outputs[index], again)
            if changed is not None:
                evidence = "an output of a timed call changed after the window had ended"
                raise WrongWindow(changed, finding("late_write", evidence))
        return window, outputs

    def _gpu_window_s(self, inputs: list[list[Any]]) -> float:
        if self._inputs_come_late:
            self._exchange.share(inputs)
        order = WindowOrder(count=len(inputs)).encoded()
        started = time.perf_counter()
        self._channel.order(FrameKind.WINDOW, order, reply=FrameKind.CALLED, spin=True)
        spent_s = self._process.received_at - started
        self._channel.expect(FrameKind.DONE, spin=True)
        return spent_s

    def _cpu_window(self, inputs: list[list[Any]]) -> TimedWindow:
        order = WindowOrder(count=len(inputs)).encoded()
        with self._process.suspended():
            self._exchange.share(inputs)
            ran_before_s = self._process.ran_s()
            waited_before_s = self._process.waited_s()
            watch = _Stopwatch.start()
            self._process.send(FrameKind.WINDOW, order)
        self._channel.expect(FrameKind.DONE)
        spent_s = self._process.received_at - watch.at
        # This process sleeps while the candidate runs. It waits before that, and when it is to wake up.
        waiting_s = watch.waiting_s() + longest_wait_s(waited_before_s, self._process.waited_s())
        return counted_window(spent_s, total_s(ran_before_s, self._process.ran_s()), waiting_s)

    def _baseline_window(self, inputs: list[list[Any]]) -> tuple[TimedWindow, list[Any]]:
        """A window of the reference while the runner is stopped, and its outputs."""
        with self._process.suspended(), settings_of_task(self._reference.task_id):
            if self._reference.facts.mutates_inputs:
                inputs = copy.deepcopy(inputs)
            if self._device == "cuda":
                started = time.perf_counter()
                outputs = call_window(self._reference.model, inputs, self._device).outputs
                window = TimedWindow(time.perf_counter() - started)
            else:
                host_memory.ready(self._allocated_bytes * len(inputs))
                kept = self._outputs_for(len(inputs))
                ran_before_s = time.process_time()
                watch = _Stopwatch.start()
                call_window(self._reference.model, inputs, self._device, kept.keep)
                spent_s = time.perf_counter() - watch.at
                window = counted_window(spent_s, time.process_time() - ran_before_s, watch.waiting_s())
                outputs = kept.outputs
            self._reference.restore()
        return window, outputs

    def _compare(self, inputs: list[list[Any]], actual: list[Any], expected: list[Any]) -> None:
        pairs = list(enumerate(zip(expected, actual, strict=False)))
        wrong = [self._wrong_call(want, got, inputs, index) for index, (want, got) in pairs]
        others = range(len(expected), len(actual))
        if others and not self._reference.changed_state:
            for index in self._random.sample(others, min(len(others), _OTHER_CALLS * len(expected))):
                wrong.append(self._wrong_call(self._reference.expected(inputs[index]), actual[index], inputs, index))
        found = [one for one in wrong if one is not None]
        if found:
            # Only calls after the first one of a window show whether outputs are those of earlier calls.
            raise next((one for one in found if one.finding is not None), found[0])

    def _wrong_call(self, want: Any, got: Any, inputs: list[list[Any]], index: int) -> WrongWindow | None:
        mismatch = wrong_values(self._reference, inputs[index], 0, want, got, self._limit)
        if mismatch is None:
            return None
        changed = [*self._reference.changed_state]
        # Where calls depend on earlier ones, earlier outputs may be part of their state.
        if index and not changed:
            earlier_output = self._reference.expected(inputs[index - 1])
            if is_stored_output(earlier_output, got, self._limit, mismatch):
                found = finding("replay", "an output of a timed call equals that of a call before it")
                return WrongWindow(mismatch, found)
        return WrongWindow(mismatch, changed=changed)

    def _outputs_for(self, calls: int) -> _JudgeOutputs:
        if calls not in self._judge_outputs:
            self._judge_outputs[calls] = _JudgeOutputs(self._reference.like, calls)
        return self._judge_outputs[calls]


def constant_cost_s(windows: Sequence[tuple[float, float]], ratio: float) -> float:
    """Time of a window that does not depend on its number of calls, in seconds.

    Args:
        windows: times of a window of n calls and of one of n / `ratio` calls, in seconds.
    """
    constant_s = statistics.median((ratio * half_s - full_s) / (ratio - 1) for full_s, half_s in windows)
    most_s = _MAX_CONSTANT_SHARE * statistics.median(full_s for full_s, _ in windows)
    return min(max(constant_s, 0.0), most_s)


@attrs.frozen
class TimedWindow:
    """Seconds of one window."""

    seconds: float
    waited_s: float = 0.0
    """Time in which a thread waited for a processor, which `seconds` does not contain."""


def counted_window(spent_s: float, ran_s: float, waiting_s: float) -> TimedWindow:
    """A window on the CPU without the time for which other programs had the processors.

    A window counts at least its CPU time divided by the number of threads that candidate and reference have, so no
    thread of the candidate can make it shorter by waiting, and no further thread by working.

    Args:
        spent_s: by the judge's clock.
        ran_s: CPU time of all threads of that side.
        waiting_s: time that a thread was ready and waited for a processor.
    """
    least_s = ran_s / torch.get_num_threads()
    if least_s > _MAX_CPU_SHARE * spent_s:
        return TimedWindow(least_s)
    counted_s = max(min(least_s, spent_s), spent_s - waiting_s)
    return TimedWindow(counted_s, spent_s - counted_s)


def widened(interval: tuple[float, float], waiting_share: float) -> tuple[float, float]:
    """The interval of a speedup that was measured beside other programs.

    They also take memory bandwidth and caches, which no clock shows: the CPU time of equal work varied by a quarter
    where threads waited three quarters of the time.
    """
    share = waiting_share if waiting_share >= _BUSY_SHARE else 0.0
    return interval[0] * (1 - _DISTURBANCE * share), interval[1] * (1 + _DISTURBANCE * share)


class _JudgeOutputs:
    """Memory of the judge for the outputs of the reference's calls on the CPU."""

    def __init__(self, like: Any, calls: int) -> None:
        self.outputs = [mapped(like, _zeros) for _ in range(calls)]
        """Copied outputs, each with the structure of an output."""
        self._targets = [tensors(output) for output in self.outputs]
        self._value = mapped(like, lambda tensor: torch.zeros_like(tensor, device="cpu"))

    def keep(self, index: int, value: Any) -> None:
        """Copy an output, as a runner does."""
        copy_outputs(self._targets[index], [value])

    def copy_s(self) -> float:
        """Seconds of one copy, averaged over one copy to each place."""
        started = time.perf_counter()
        for index in range(len(self._targets)):
            self.keep(index, self._value)
        return (time.perf_counter() - started) / len(self._targets)


def _zeros(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype)

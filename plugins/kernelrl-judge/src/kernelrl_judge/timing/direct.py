"""Times of calls that are made directly: on the CPU, and on a GPU where calls cannot be recorded.

A window is a series of calls on inputs of their own, by the judge's clock, from the order until the runner says that
the calls are made. A round has four windows: n and n/2 calls of the candidate, and of the reference in the judge's own
process, on the same new inputs, in random order. What a window costs beside its calls is what two windows of n/2 calls
take longer than one of n, in the median over the rounds. All outputs are compared with those of the reference; of a
candidate that makes over four times as many calls as the reference, as many as that, chosen at random.

On the CPU each output is copied to its place before the next call, on either side; what that copy takes in the judge's
process is subtracted from both. The inputs come with the order, and the runner is stopped while they are written and
while the reference is timed: nothing can be done before the clock runs, nor against the reference. A window takes at
least its CPU time by the threads that both sides have.
"""

from __future__ import annotations

import copy
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.peer.memory import ArenaExchange, Exchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.probes.values import is_replay, replay
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.trees import leaves_bytes, mapped, places, tensors
from kernelrl_judge.protocol.values import encode_tree
from kernelrl_judge.runner import host_memory
from kernelrl_judge.runner.memory import Outputs
from kernelrl_judge.runner.windows import window
from kernelrl_judge.task.comparing import compare_bytes, tolerance
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import FIRST_TIMED, Reference
from kernelrl_judge.timing.statistics import MOST_LEAVES, Timing, WrongWindow, make_rounds

__all__ = ["DirectMeasurement", "beyond_s", "per_window_s"]

_SETTLED = 0.012
_BUDGET_S = {"cuda": 0.4, "cpu": 1.0}
_WINDOW_S = 8e-3
"""Aimed at for n calls: half of them are still long against the delays of the scheduler."""
_MOST_CALLS = 256
_MOST_BYTES = {"cuda": 4 << 30, "cpu": 1 << 30}
"""Inputs and outputs of a window."""
_OTHER_CALLS = 3
"""Times the calls of the reference's window: so many further calls of the candidate are compared."""
_MOST_AROUND = 0.1
"""Of a window: what may be subtracted for what it costs beside its calls."""
_LEAST_SHARE = 0.2
"""Of a call's time with the copy of its output: what is left without the copy, at least."""
_MORE_THREADS = 1.05
"""CPU time that a window may have for each of its threads, as a share of its length."""


@attrs.define(eq=False, slots=False)
class DirectMeasurement:
    """Times a candidate that passed its trials: `run` on a device that is this judge's alone, then `result`."""

    _runner: Runner
    _reference: Reference
    _exchange: Exchange
    _expect: Callable[..., frames.Frame]
    """Receives the next frame, which has to be of a kind."""
    _settings: EvaluationSettings
    # Not the seeds of the inputs: the order must not be known before it is made.
    _random: random.Random = attrs.field(factory=random.SystemRandom)
    _next_input: int = FIRST_TIMED
    _scratches: dict[int, _Scratch] = attrs.field(factory=dict)
    _earlier: Any = None
    _calls: dict[str, int] = attrs.field(factory=lambda: {"candidate": 2, "baseline": 2})
    _rounds: list[tuple[dict[str, float], dict[str, float]]] = attrs.field(factory=list)
    _copies_s: list[float] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self._device, self._limit = self._reference.device, tolerance(self._settings)
        # Device memory that cannot be shared: the runner copies the inputs to the GPU before the clock runs.
        self._kept_back = self._device == "cpu" or isinstance(self._exchange, ArenaExchange)
        first, like = self._reference.inputs(FIRST_TIMED), self._reference.like
        leaves, moved = len(tensors([first, like])), leaves_bytes(first) + leaves_bytes(like)
        between = max((tensor.nbytes for tensor in tensors(first)), default=0)
        # What a call may allocate: its outputs, and one tensor between them and its inputs.
        self._allocated = [between, *(tensor.nbytes for tensor in tensors(like))]
        self._most_calls = max(
            2, min(_MOST_CALLS, _MOST_BYTES[self._device] // max(1, moved), MOST_LEAVES // (leaves + 2))
        )

    def run(self, max_rounds: int) -> None:
        """Make the windows.

        Raises:
            WrongWindow: an output of a timed call is wrong.
            What `expect` raises.
        """
        self._find_lengths()
        make_rounds(
            lambda: self._rounds.append(self._round()),
            lambda: [[full[side] for full, _ in self._rounds] for side in self._calls],
            most=max_rounds,
            budget_s=_BUDGET_S[self._device],
            share=_SETTLED,
        )

    def release(self) -> None:
        """Let go of values: what refers to this object may live until garbage is collected."""
        self._earlier = None
        self._scratches.clear()

    def result(self) -> Timing:
        """Medians, speedup and telemetry."""
        return Timing.of(
            self._per_call_us("candidate"),
            self._per_call_us("baseline"),
            method="calls",
            rounds=len(self._rounds),
            calls_per_window=self._calls["candidate"],
            baseline_calls_per_window=self._calls["baseline"],
        )

    def _find_lengths(self) -> None:
        """Double the calls of each side until its windows are long enough."""
        while True:
            times = self._windows(dict(self._calls))
            wanted = {
                side: min(self._most_calls, 2 * math.ceil(count * min(_WINDOW_S / max(times[side], 1e-6), 16) / 2))
                for side, count in self._calls.items()
            }
            grown = {side: max(count, wanted[side] - wanted[side] % 2) for side, count in self._calls.items()}
            if all(grown[side] <= 1.2 * count for side, count in self._calls.items()):
                return
            self._calls = grown

    def _round(self) -> tuple[dict[str, float], dict[str, float]]:
        """Seconds of the windows of n and of n/2 calls, by side."""
        full = dict(self._calls)
        sizes = [full, {side: count // 2 for side, count in full.items()}]
        order = [0, 1]
        self._random.shuffle(order)
        made = {index: self._windows(sizes[index]) for index in order}
        if self._device == "cpu":
            self._copies_s.append(self._scratch(full["baseline"]).copy_s())
        return made[0], made[1]

    def _per_call_us(self, side: str) -> list[float]:
        """Time of one call in each round, in microseconds."""
        calls, half_calls = self._calls[side], self._calls[side] // 2
        around_s = per_window_s([(full[side], half[side]) for full, half in self._rounds], calls / half_calls)
        copy_s = min(self._copies_s, default=0.0)
        each_s = [max(full[side] - around_s, 0.0) / calls for full, _ in self._rounds]
        return [max(spent_s - copy_s, _LEAST_SHARE * spent_s, 1e-9) * 1e6 for spent_s in each_s]

    def _windows(self, calls: dict[str, int]) -> dict[str, float]:
        """One window of either side on the same new inputs; seconds of each."""
        inputs = self._reference.many_inputs(self._next_input, max(calls.values()))
        self._next_input += len(inputs)
        given = inputs[: calls["candidate"]]
        outputs = self._staged(given)
        sides = ["candidate", "baseline"]
        self._random.shuffle(sides)
        times, actual, expected = {}, [], []
        for side in sides:
            if side == "candidate":
                times[side], actual = self._candidate_window(given, outputs)
            else:
                with self._runner.suspended():
                    times[side], expected = self._baseline_window(inputs[: calls["baseline"]])
        self._compare(given, actual, expected)
        return times

    def _staged(self, given: list[list[Any]]) -> list[Any]:
        """Have the runner prepare a window; returns where its outputs will be."""
        outputs, room = places(self._reference.like, len(given), self._device)
        state = self._reference.changed_state
        if state:
            # The calls begin where those of the reference begin.
            self._runner.send(FrameKind.IMPOSE, encode_tree(self._exchange.share(state)))
            self._expect(FrameKind.STAGED)
        if self._kept_back:
            tree = self._exchange.announce(given, room)
        else:
            self._exchange.make_room(room)
            tree = self._exchange.share(given)
        order = {"inputs": tree, "outputs": outputs, "announced": self._kept_back, "ready": self._allocated}
        self._runner.send(FrameKind.STAGE, encode_tree(order))
        self._expect(FrameKind.STAGED)
        return outputs

    def _candidate_window(self, given: list[list[Any]], outputs: list[Any]) -> tuple[float, list[Any]]:
        body = encode_tree({"count": len(given)})
        if self._device == "cuda":
            if self._kept_back:
                self._exchange.share(given)
            started = time.perf_counter()
            self._runner.send(FrameKind.WINDOW, body)
            self._expect(FrameKind.CALLED, spin=True)
            spent_s = self._runner.heard_at - started
            self._expect(FrameKind.DONE, spin=True)
        else:
            with self._runner.suspended():
                self._exchange.share(given)
                ran_s = self._runner.ran_s()
                started = time.perf_counter()
                self._runner.send(FrameKind.WINDOW, body)
            self._expect(FrameKind.DONE)
            spent_s = self._runner.heard_at - started
            spent_s += beyond_s(ran_s, self._runner.ran_s(), spent_s)
        # Now, before anything that was left undone could still be done.
        found = [self._exchange.collect(self._reference.like, place) for place in outputs]
        self._expect(FrameKind.FACTS)
        if "late_writes" in self._settings.probes:
            place = self._random.randrange(len(outputs))
            again = self._exchange.collect(self._reference.like, outputs[place])
            changed = compare_bytes(found[place], again)
            if changed is not None:
                evidence = "an output of a timed call changed after the window had ended"
                raise WrongWindow(changed, finding("late_write", evidence))
        return spent_s, found

    def _baseline_window(self, inputs: list[list[Any]]) -> tuple[float, list[Any]]:
        if self._reference.facts["mutates_inputs"]:
            inputs = copy.deepcopy(inputs)
        if self._device == "cuda":
            started = time.perf_counter()
            outputs = window(self._reference.model, inputs, self._device).outputs
            spent_s = time.perf_counter() - started
        else:
            host_memory.ready(self._allocated * len(inputs))
            scratch = self._scratch(len(inputs))
            started = time.perf_counter()
            window(self._reference.model, inputs, self._device, scratch.keep)
            spent_s = time.perf_counter() - started
            outputs = scratch.outputs
        self._reference.restore()
        return spent_s, outputs

    def _compare(self, given: list[list[Any]], actual: list[Any], expected: list[Any]) -> None:
        changed = [*self._reference.changed_state]
        for index, (want, got) in enumerate(zip(expected, actual, strict=False)):
            self._check(want, got, given, index)
        rest = range(len(expected), len(actual))
        if rest and not changed:
            for index in self._random.sample(rest, min(len(rest), _OTHER_CALLS * len(expected))):
                self._check(self._reference.expected(given[index]), actual[index], given, index)
        self._earlier = given[-1]

    def _check(self, want: Any, got: Any, given: list[list[Any]], index: int) -> None:
        wrong = wrong_values(self._reference, given[index], 0, want, got, self._limit)
        if wrong is None:
            return
        changed = [*self._reference.changed_state]
        before = given[index - 1] if index else self._earlier
        # Where calls depend on earlier ones, what these gave may be part of their state.
        if before is not None and not changed and is_replay(self._reference.expected(before), got, self._limit, wrong):
            raise WrongWindow(wrong, replay("an output of a timed call equals that of a call before it"))
        raise WrongWindow(wrong, changed=changed)

    def _scratch(self, calls: int) -> _Scratch:
        if calls not in self._scratches:
            self._scratches[calls] = _Scratch(self._reference.like, calls)
        return self._scratches[calls]


def per_window_s(windows: Sequence[tuple[float, float]], ratio: float) -> float:
    """What a window costs beside its calls, in seconds.

    Args:
        windows: times of a window of n calls and of one of n / `ratio` calls, in seconds.
    """
    found = statistics.median((ratio * half_s - full_s) / (ratio - 1) for full_s, half_s in windows)
    return min(max(found, 0.0), _MOST_AROUND * statistics.median(full_s for full_s, _ in windows))


def beyond_s(before_s: dict[int, float], after_s: dict[int, float], window_s: float) -> float:
    """What a window would have taken longer with the threads that candidate and reference have.

    Args:
        before_s: CPU time of each process of the candidate, by its number, before the window.
        after_s: the same after it.
    """
    ran_s = sum(now_s - before_s.get(pid, 0.0) for pid, now_s in after_s.items())
    alone_s = ran_s / torch.get_num_threads()
    return alone_s - window_s if alone_s > _MORE_THREADS * window_s else 0.0


class _Scratch:
    """A place in the judge's own memory for the outputs of each of some calls on the CPU."""

    def __init__(self, like: Any, calls: int) -> None:
        self._writer = Outputs(-1)
        self.outputs = [mapped(like, _place) for _ in range(calls)]
        """What was copied, with the structure of an output."""
        self._targets = [*map(tensors, self.outputs)]
        self._value = mapped(like, lambda tensor: torch.zeros_like(tensor, device="cpu"))

    def keep(self, index: int, value: Any) -> None:
        """Copy an output as a runner does."""
        self._writer.fill(self._targets[index], [value])

    def copy_s(self) -> float:
        """Seconds of one copy, by one for each place."""
        started = time.perf_counter()
        for index in range(len(self._targets)):
            self.keep(index, self._value)
        return (time.perf_counter() - started) / len(self._targets)


def _place(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros(tensor.shape, dtype=tensor.dtype)

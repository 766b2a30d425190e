"""Times of replays: windows of candidate and reference on the same fresh inputs, in random order.

A round has four windows: k and k/2 calls of either side. Each round draws new inputs for each number of calls, and all
outputs of the candidate are compared with those of the reference. The time of one call is the slope between the two
numbers of calls.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import TimingFacts
from kernelrl_judge.device.facts import cache_bytes
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.recordings import CandidateRecordings, NotRecorded, ReferenceRecordings
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.replay_trials import impose, warm_inputs
from kernelrl_judge.protocol.trees import leaves_bytes, mapped, message_bytes, tensors
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.slope import ReplayWindow, Slots, charged, clock_agrees, per_call_us, planned, steady
from kernelrl_judge.task.comparison import Tolerance, tolerance
from kernelrl_judge.task.drawn_parameters import ParameterDraws
from kernelrl_judge.task.input_indices import FIRST_TIMED
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.reference_budget import call_seconds
from kernelrl_judge.timing.statistics import BYTES_OF_TENSOR, MAX_TENSORS, NotTimed, Timing, WrongWindow, make_rounds

__all__ = ["ReplayMeasurement", "slots_for"]

_BUDGET_S = 0.12
_ATTEMPTS = 2
"""Rounds whose times the judge's clock does not confirm are repeated once."""
_MAX_NODES = 4096
"""Nodes of a recording: their description takes memory of the runner."""
_COMPARED_AT_ONCE_BYTES = 256 << 20
_MARGIN = 0.01
_RECORDING_SHARE = 0.1
"""Share of the time limit for the recorded calls of the reference."""


@attrs.frozen
class _ReplayRound:
    """Windows of one round, of k and of k/2 calls; the latter are None where one call is a window."""

    candidate: ReplayWindow
    candidate_half: ReplayWindow | None
    baseline: ReplayWindow
    baseline_half: ReplayWindow | None

    @property
    def candidate_windows(self) -> list[ReplayWindow]:
        return [window for window in (self.candidate, self.candidate_half) if window is not None]

    @property
    def baseline_windows(self) -> list[ReplayWindow]:
        return [window for window in (self.baseline, self.baseline_half) if window is not None]

    @property
    def windows(self) -> list[ReplayWindow]:
        return [*self.candidate_windows, *self.baseline_windows]


@attrs.define(eq=False)
class ReplayMeasurement:
    """Times a candidate that passed its trials: `prepare`, `run` with the device held exclusively, `result`."""

    _recorder: Recorder
    _session: RunnerSession
    _recordings: CandidateRecordings
    _draws: ParameterDraws
    _call_us: float
    """Device time of one call in the trials."""
    _keeps_parameters: bool
    """Whether all windows have the parameters with which the candidate was recorded."""
    _random: random.Random = attrs.field(factory=random.SystemRandom)
    _next_input: int = FIRST_TIMED
    _slots: Slots = attrs.field(factory=lambda: Slots(1, 0, reduced=False))
    _baseline: ReferenceRecordings | None = None
    _rounds: list[_ReplayRound] = attrs.field(factory=list)

    @property
    def _reference(self) -> Reference:
        return self._draws.reference

    def prepare(self) -> None:
        """Record both sides, while others use the device as well.

        Raises:
            NotRecorded: one side cannot be recorded.
            What `CandidateRecordings.record` raises.
        """
        n_nodes = sum(node.launches for node in self._recordings.nodes)
        self._slots = slots_for(self._reference, self._call_us, n_nodes)
        while True:
            try:
                return self._record()
            except NotRecorded as error:
                if not error.lacks_memory or self._slots.calls == 1:
                    raise
                calls = self._slots.calls // 4 * 2 or 1
                self._slots = Slots(calls, calls // 2, reduced=True)

    def _record(self) -> None:
        self.release()
        self._draws.draw()
        self._recordings.leave()
        impose(self._session, self._reference)
        counts = [count for count in (self._slots.calls, self._slots.half) if count]
        slots = self._inputs(self._slots.calls)
        self._baseline = ReferenceRecordings(self._recorder, self._reference, slots, counts)
        self._recordings.record(
            slots,
            warm_inputs(self._reference, slots[0]),
            self._reference.like,
            counts,
            imposed=self._reference.imposed_state,
            changed=self._reference.changed_state,
        )
        mismatch = self._recordings.mismatch(self._reference.like)
        if mismatch is not None:
            raise WrongWindow(mismatch)

    def run(self, max_rounds: int) -> None:
        """Make the windows.

        Raises:
            WrongWindow: an output of a timed call is wrong.
            NotTimed: the judge's clock does not confirm the times of the device.
            What `CandidateRecordings.run` raises.
        """
        for _ in range(_ATTEMPTS):
            self._rounds = []
            make_rounds(
                lambda: self._rounds.append(self._round()),
                lambda: _per_call(self._rounds),
                most=max_rounds,
                budget_s=_BUDGET_S,
                share=LIMITS.settled_share,
            )
            candidate = [window for made in self._rounds for window in made.candidate_windows]
            if clock_agrees(candidate):
                return
        raise NotTimed("the judge's clock does not confirm the times that the runner reports")

    def release(self) -> None:
        """Free the recordings of the baseline."""
        if self._baseline is not None:
            self._baseline.close()
            self._baseline = None

    def result(self) -> Timing:
        """Medians and speedup over the rounds with a steady clock."""
        windows = [window for made in self._rounds for window in made.windows]
        messages_us = statistics.median(made.candidate.host_us - made.candidate.whole_us for made in self._rounds)
        unsteady = {id(window) for window, is_steady in zip(windows, steady(windows), strict=True) if not is_steady}
        kept = [made for made in self._rounds if unsteady.isdisjoint(map(id, made.windows))] or self._rounds
        facts = TimingFacts(
            method="replay",
            rounds=len(kept),
            dropped_rounds=len(self._rounds) - len(kept),
            calls_per_window=self._slots.calls,
            fewer_slots_for_memory=self._slots.reduced,
            sm_ghz=round(windows[0].sm_ghz, 3),
            host_beyond_device_us=round(messages_us, 1),
        )
        candidate_us, baseline_us = _per_call(kept)
        return Timing.of(candidate_us, baseline_us, facts)

    def _inputs(self, calls: int) -> list[list[Any]]:
        found = self._reference.many_inputs(self._next_input, calls)
        self._next_input += calls
        return found

    def _round(self) -> _ReplayRound:
        graphs = [0, 1] if self._slots.half else [0]
        self._random.shuffle(graphs)
        candidate: dict[int, ReplayWindow] = {}
        baseline: dict[int, ReplayWindow] = {}
        assert self._baseline is not None
        for graph in graphs:
            inputs = self._inputs(self._slots.half if graph else self._slots.calls)
            if not self._keeps_parameters:
                self._draws.draw_for_window()
            self._recordings.write(inputs, self._reference.imposed_state)
            self._baseline.write(inputs)
            sides = ["candidate", "baseline"]
            self._random.shuffle(sides)
            for side in sides:
                if side == "candidate":
                    candidate[graph] = self._recordings.run(graph)
                else:
                    baseline[graph] = self._baseline.run(graph)
            self._compare(inputs, candidate[graph].calls)
            candidate[graph] = charged(candidate[graph], baseline[graph])
        return _ReplayRound(candidate[0], candidate.get(1), baseline[0], baseline.get(1))

    def _compare(self, inputs: list[list[Any]], calls: int) -> None:
        """Compare all outputs of the last window with those of the reference's window on the same inputs."""
        assert self._baseline is not None
        limit = tolerance(self._reference.settings)
        # Copies: nothing that is written later counts.
        got, want = self._recordings.outputs(calls), self._baseline.outputs(calls)
        step = max(1, _COMPARED_AT_ONCE_BYTES // max(1, leaves_bytes(self._reference.like)))
        for begin in range(0, calls, step):
            rows = slice(begin, begin + step)
            pairs = zip(want, got, strict=True)
            if all(_surely_close(expected[rows], actual[rows], limit) for expected, actual in pairs):
                continue
            for number in range(begin, min(calls, begin + step)):
                expected = self._output(want, number)
                actual = self._output(got, number)
                mismatch = wrong_values(self._reference, inputs[number], 0, expected, actual, limit)
                if mismatch is not None:
                    raise WrongWindow(mismatch, changed=[*self._reference.changed_state])

    def _output(self, outputs: Iterable[torch.Tensor], number: int) -> Any:
        """The output of a call, in the structure of the reference's."""
        found = iter([tensor[number] for tensor in outputs])
        return mapped(self._reference.like, lambda tensor: next(found) if tensor.numel() else tensor)


def slots_for(reference: Reference, call_us: float, nodes: int = 1) -> Slots:
    """The number of calls in a recording, with the device memory that is free now.

    Args:
        call_us: device time of one call, in microseconds.
        nodes: number of nodes of the graph of one call.
    """
    first = reference.inputs(FIRST_TIMED)
    leaves = len(tensors(first)) + len(tensors(reference.like))
    leaves = max(leaves, message_bytes([first, reference.like]) // BYTES_OF_TENSOR)
    free_bytes, _ = torch.cuda.mem_get_info()
    # Each call of a recording is made once by the host, and a slow reference takes its time there.
    by_time = int(_RECORDING_SHARE * reference.settings.timeout_s / call_seconds(reference))
    return planned(
        input_bytes=leaves_bytes(first),
        output_bytes=leaves_bytes(reference.like),
        call_us=call_us,
        cache_bytes=cache_bytes(),
        free_bytes=free_bytes,
        most_calls=min(MAX_TENSORS // max(1, leaves), max(2, _MAX_NODES // max(1, nodes)), max(1, by_time)),
    )


def _per_call(rounds: Sequence[_ReplayRound]) -> tuple[list[float], list[float]]:
    """Microseconds of one call in each round, of the candidate and of the reference."""
    candidate_us = [max(per_call_us(made.candidate, made.candidate_half), 1e-3) for made in rounds]
    baseline_us = [max(per_call_us(made.baseline, made.baseline_half), 1e-3) for made in rounds]
    return candidate_us, baseline_us


def _surely_close(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance) -> bool:
    """Whether outputs are certainly close, by the absolute tolerance alone: a few operations for many calls.

    Args:
        expected, actual: [calls, ...] one tensor of each call's output.
    """
    if expected.is_floating_point() and expected.element_size() == 1:
        # torch does not compute with float8 kinds.
        return False
    if not (expected.is_floating_point() and limit.strict):
        return torch.equal(expected, actual)
    dtype = torch.float32 if expected.element_size() < 4 else expected.dtype
    rows, others = (tensor.reshape(len(tensor), -1) for tensor in (expected, actual))
    scale = torch.linalg.vector_norm(rows, dim=1, dtype=dtype).div_(rows.shape[1] ** 0.5).clamp_max_(1.0)
    columns = max(1, _COMPARED_AT_ONCE_BYTES // (dtype.itemsize * len(rows)))
    parts = zip(torch.split(rows, columns, dim=1), torch.split(others, columns, dim=1), strict=True)
    distances = [torch.linalg.vector_norm(got.to(dtype) - want, ord=torch.inf, dim=1) for want, got in parts]
    largest = torch.stack(distances).amax(0)
    atol = limit.atol_of(expected.dtype) * (1 - _MARGIN)
    return bool((largest <= atol * scale).all()) or torch.equal(expected, actual)

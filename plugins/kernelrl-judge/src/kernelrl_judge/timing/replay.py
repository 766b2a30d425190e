"""Time of a recorded candidate: windows of candidate and reference on the same fresh inputs, in random order.

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

from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.peer import device_facts
from kernelrl_judge.peer.replay import CandidateSession, NotRecorded, ReferenceSession
from kernelrl_judge.probes.replayed import warm_inputs
from kernelrl_judge.protocol.limits import LIMITS
from kernelrl_judge.protocol.trees import leaves_bytes, mapped, tensors
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.library import Library
from kernelrl_judge.replay.slope import Slots, Window, clock_agrees, per_call_us, planned, steady
from kernelrl_judge.task.comparing import Tolerance, tolerance
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import FIRST_TIMED, Reference
from kernelrl_judge.timing.statistics import MOST_LEAVES, Timing, WrongWindow, make_rounds

__all__ = ["ReplayMeasurement", "Unmeasured", "slots_for"]

_BUDGET_S = 0.12
_SECTIONS = 2
"""A section whose times the judge's clock does not confirm is repeated once."""
_MOST_NODES = 4096
"""Of a recording: their description takes memory of the runner."""
_COMPARED_AT_ONCE_BYTES = 256 << 20
_MARGIN = 0.01

_Round = tuple[Window, Window | None, Window, Window | None]
"""Windows of k and of k/2 calls, of the candidate and then of the reference."""


class Unmeasured(Exception):
    """There is no time; the argument is the reason."""


@attrs.define(eq=False)
class ReplayMeasurement:
    """Times a candidate that passed its trials: `prepare`, `run` on a device that is this judge's alone, `result`."""

    _library: Library
    _recorder: Recorder
    _session: CandidateSession
    _reference: Reference
    _settings: EvaluationSettings
    _call_us: float
    """Device time of one call, as the trials saw it."""
    _random: random.Random = attrs.field(factory=random.SystemRandom)
    _next_input: int = FIRST_TIMED
    _slots: Slots = attrs.field(factory=lambda: Slots(1, 0, reduced=False))
    _baseline: ReferenceSession | None = None
    _rounds: list[_Round] = attrs.field(factory=list)

    @property
    def recorders(self) -> tuple[Library, Recorder]:
        """What records references."""
        return self._library, self._recorder

    def prepare(self) -> None:
        """Record both sides, while others use the device, too.

        Raises:
            NotRecorded: one side cannot be recorded.
            What `CandidateSession.record` raises.
        """
        nodes = sum(count for _, _, count in self._session.nodes)
        self._slots = slots_for(self._reference, self._call_us, nodes)
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
        counts = [count for count in (self._slots.calls, self._slots.half) if count]
        slots = self._inputs(self._slots.calls)
        self._baseline = ReferenceSession(self._library, self._recorder, self._reference, slots, counts)
        like, changed = self._reference.like, self._reference.changed_state
        self._session.record(slots, warm_inputs(self._reference, slots[0]), like, counts, changed)
        wrong = self._session.mismatch(self._reference.like)
        if wrong is not None:
            raise WrongWindow(wrong)

    def run(self, max_rounds: int) -> None:
        """Make the windows.

        Raises:
            WrongWindow: an output of a timed call is wrong.
            Unmeasured: the judge's clock does not confirm the times of the device.
        """
        for _ in range(_SECTIONS):
            self._rounds = []
            make_rounds(
                lambda: self._rounds.append(self._round()),
                lambda: _per_call(self._rounds),
                most=max_rounds,
                budget_s=_BUDGET_S,
                share=LIMITS.settled_share,
            )
            sides = [[window for made in self._rounds for window in made[side : side + 2] if window] for side in (0, 2)]
            if clock_agrees(*sides):
                break
        else:
            raise Unmeasured("the judge's clock does not confirm the times that the runner reports")

    def release(self) -> None:
        """Free what the measurement needs of the device."""
        if self._baseline is not None:
            self._baseline.close()
            self._baseline = None

    def result(self) -> Timing:
        """Medians, speedup and telemetry."""
        windows = [window for made in self._rounds for window in made if window is not None]
        messages_us = statistics.median(full.host_us - full.whole_us for full, _, _, _ in self._rounds)
        unsteady = {id(window) for window, is_steady in zip(windows, steady(windows), strict=True) if not is_steady}
        kept = [made for made in self._rounds if not unsteady.intersection(map(id, made))] or self._rounds
        return Timing.of(
            *_per_call(kept),
            method="replay",
            rounds=len(kept),
            dropped_rounds=len(self._rounds) - len(kept),
            calls_per_window=self._slots.calls,
            fewer_slots_for_memory=self._slots.reduced,
            sm_ghz=round(windows[0].sm_ghz, 3),
            host_beyond_device_us=round(messages_us, 1),
        )

    def _inputs(self, calls: int) -> list[list[Any]]:
        found = self._reference.many_inputs(self._next_input, calls)
        self._next_input += calls
        return found

    def _round(self) -> _Round:
        graphs = [0, 1] if self._slots.half else [0]
        self._random.shuffle(graphs)
        made: dict[tuple[str, int], Window] = {}
        assert self._baseline is not None
        for graph in graphs:
            inputs = self._inputs(self._slots.half if graph else self._slots.calls)
            self._session.write(inputs)
            self._baseline.write(inputs)
            sides: list[str] = ["candidate", "baseline"]
            self._random.shuffle(sides)
            for side in sides:
                made[side, graph] = (self._session if side == "candidate" else self._baseline).run(graph)
            self._compare(inputs, made["candidate", graph].calls)
        return made["candidate", 0], made.get(("candidate", 1)), made["baseline", 0], made.get(("baseline", 1))

    def _compare(self, inputs: list[list[Any]], calls: int) -> None:
        """All outputs of the last window, against those of the reference's window on the same inputs."""
        assert self._baseline is not None
        limit = tolerance(self._settings)
        # A copy made now: nothing that is written later counts.
        got, want = self._session.outputs(calls), self._baseline.outputs(calls)
        step = max(1, _COMPARED_AT_ONCE_BYTES // max(1, leaves_bytes(self._reference.like)))
        for begin in range(0, calls, step):
            rows = slice(begin, begin + step)
            pairs = zip(want, got, strict=True)
            if all(_surely_close(expected[rows], actual[rows], limit) for expected, actual in pairs):
                continue
            for number in range(begin, min(calls, begin + step)):
                expected, actual = (self._output(outputs, number) for outputs in (want, got))
                wrong = wrong_values(self._reference, inputs[number], 0, expected, actual, limit)
                if wrong is not None:
                    raise WrongWindow(wrong, changed=[*self._reference.changed_state])

    def _output(self, outputs: Iterable[torch.Tensor], number: int) -> Any:
        """The output of a call, in the structure of the reference's."""
        found = iter([tensor[number] for tensor in outputs])
        return mapped(self._reference.like, lambda _: next(found))


def slots_for(reference: Reference, call_us: float, nodes: int = 1) -> Slots:
    """The number of calls in a recording, with the device memory that is free now.

    Args:
        call_us: device time of one call, in microseconds.
        nodes: of the graph of one call.
    """
    first = reference.inputs(FIRST_TIMED)
    leaves = len(tensors(first)) + len(tensors(reference.like))
    free_bytes, _ = torch.cuda.mem_get_info()
    return planned(
        input_bytes=leaves_bytes(first),
        output_bytes=leaves_bytes(reference.like),
        call_us=call_us,
        cache_bytes=device_facts.cache_bytes(),
        free_bytes=free_bytes,
        most_calls=min(MOST_LEAVES // max(1, leaves), max(2, _MOST_NODES // max(1, nodes))),
    )


def _per_call(rounds: Sequence[_Round]) -> tuple[list[float], list[float]]:
    """Microseconds of one call in each round, of the candidate and of the reference."""
    candidate_us = [max(per_call_us(full, half), 1e-3) for full, half, _, _ in rounds]
    baseline_us = [max(per_call_us(full, half), 1e-3) for _, _, full, half in rounds]
    return candidate_us, baseline_us


def _surely_close(expected: torch.Tensor, actual: torch.Tensor, limit: Tolerance) -> bool:
    """Whether outputs are close beyond doubt, at the cost of a few operations for many calls: by the absolute tolerance
    alone.

    Args:
        expected, actual: [calls, ...] one tensor of each call's output.
    """
    if not (expected.is_floating_point() and limit.strict):
        return torch.equal(expected, actual)
    dtype = torch.float32 if expected.element_size() < 4 else expected.dtype
    rows, others = (tensor.reshape(len(tensor), -1) for tensor in (expected, actual))
    scale = torch.linalg.vector_norm(rows, dim=1, dtype=dtype).div_(rows.shape[1] ** 0.5).clamp_max_(1.0)
    columns = max(1, _COMPARED_AT_ONCE_BYTES // (dtype.itemsize * len(rows)))
    parts = zip(rows.split(columns, 1), others.split(columns, 1), strict=True)
    distances = [torch.linalg.vector_norm(got.to(dtype) - want, ord=torch.inf, dim=1) for want, got in parts]
    largest = torch.stack(distances).amax(0)
    return bool((largest <= limit.atol * (1 - _MARGIN) * scale).all()) or torch.equal(expected, actual)

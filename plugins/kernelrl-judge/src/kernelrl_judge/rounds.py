"""One round of a measurement: a window of the candidate and one of the reference on the same fresh inputs.

`kernelrl_judge.timing` says what windows are, and decides how many rounds there are.
"""

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

from kernelrl_core.api.evaluators import Finding, Mismatch, RuntimeStatistics, Severity
from kernelrl_judge import host_memory, protocol
from kernelrl_judge.comparing import Tolerance, compare_bytes, compare_values
from kernelrl_judge.exchange import ArenaExchange, Exchange
from kernelrl_judge.input_indices import FIRST_TIMED
from kernelrl_judge.layouts import leaves_bytes, places
from kernelrl_judge.overheads import Flush, Overheads, TurnCosts
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference
from kernelrl_judge.running import Runner
from kernelrl_judge.timing_record import Record
from kernelrl_judge.trees import tensors
from kernelrl_judge.trials import is_replay, replay
from kernelrl_judge.turning import Turning
from kernelrl_judge.value_trees import TensorLeaf, encode_tree
from kernelrl_judge.watching import Look, Watch
from kernelrl_judge.windows import rehearse, window

__all__ = ["Rounds", "WrongWindow"]

_MOST_LOST = 3
"""Rounds in a row in which a candidate runs while it is to stand still: what happens by chance does not last."""
_VERIFIED_CALLS = 2
_LARGE_BYTES = 8 << 20
_COPY_SHARE = 0.8
"""Of a copy's time: the best kernel may move its bytes a little faster."""
_EXPORT_SLACK_S = 3e-4
"""What a runner on a GPU may take longer to copy outputs than the judge: it depends on where they lie."""
_EXPORT_SLACK = 0.1
"""The same as a share, where they are copied to the host."""


class WrongWindow(Exception):
    """An output of a timed call is wrong; the finding says so if that is no mistake.

    Args:
        changed: names of what calls of the reference change in its state.
    """

    def __init__(self, mismatch: Mismatch, finding: Finding | None = None, changed: Sequence[str] = ()) -> None:
        super().__init__(mismatch.kind)
        self.mismatch = mismatch
        self.finding = finding
        self.changed = changed


class Rounds:
    """Makes rounds for one candidate.

    Args:
        expect: receives the next frame, which has to be of a kind.
        message_s: from `overheads.message_cost`.
        costs: from `overheads.turn_costs`, on a GPU.
        reads_again: whether outputs are read a second time, to see that nothing is written after a window.
        watch: looks at windows that are not counted.
    """

    def __init__(
        self,
        runner: Runner,
        reference: Reference,
        exchange: Exchange,
        expect: Callable[..., protocol.Frame],
        *,
        limit: Tolerance,
        message_s: float,
        costs: TurnCosts,
        reads_again: bool,
        watch: Watch | None = None,
    ) -> None:
        self._runner = runner
        self._reference = reference
        self._exchange = exchange
        self._expect = expect
        self._limit = limit
        self._message_s = message_s
        self._order_s = costs.order_s
        self._device = reference.device
        # Device memory that cannot be shared: the runner copies the inputs to the GPU before the clock runs.
        self._kept_back = self._device == "cpu" or isinstance(exchange, ArenaExchange)
        # Not the seeds of the inputs: order and choice must not be known before they are made.
        self._random = random.SystemRandom()
        self._next_input = FIRST_TIMED
        outputs_on = self._device if isinstance(exchange, ArenaExchange) else "cpu"
        self._export_slack = _EXPORT_SLACK if outputs_on == "cpu" else 0.0
        self._overheads = Overheads(reference, outputs_on)
        self._flush = Flush(self._device)
        self._turning = Turning(runner, expect, self._flush, costs.wake_s) if self._device == "cuda" else None
        self._reads_again = reads_again
        self._watch = watch
        self._earlier: Any = None
        self._places_of: dict[int, tuple[list[Any], int]] = {}
        self._ordered: tuple[Any, Any, bytes] | None = None
        self._ahead: bytes | None = None
        first = reference.inputs(FIRST_TIMED)
        given, made = leaves_bytes(first), leaves_bytes(reference.like)
        self._allocated_bytes = _allocated_bytes(first, reference.like) if self._device == "cpu" else []
        # The copy reads what was just written; to write where results before lay takes half of its time at most.
        self._copy_share = _COPY_SHARE * (min(given, made) + made / 2) / (1.5 * max(made, 1))
        self.record = Record(self._device)
        # Every round has others, which nobody knows before: one of each round is enough where comparing takes long.
        self._verified_calls = 1 if leaves_bytes(reference.like) > _LARGE_BYTES else _VERIFIED_CALLS

    def alone(self) -> None:
        """From now on nobody else uses the device."""
        if self._turning is not None:
            self._turning.alone = True

    def forget(self) -> None:
        """Begin anew with what was measured beside the windows, and with what they told."""
        self._overheads.forget()
        self.record.forget()
        if self._turning is not None:
            self._turning.forget()

    def release(self) -> None:
        """Let go of values, after the last round: what else refers to this object may live until garbage is collected,
        and the device's memory is wanted by the next judge."""
        self._earlier = None
        self._overheads.release()
        if self._watch is not None:
            self._watch.release()

    def findings(self, runtime: RuntimeStatistics, baseline: RuntimeStatistics) -> tuple[Finding, ...]:
        """What is to be said of the windows."""
        left = self._turning.findings() if self._turning is not None else ()
        return (*self.record.findings(runtime, baseline), *left)

    def make(
        self,
        staged: int,
        candidate_calls: int,
        baseline_calls: int,
        look: Look = Look.NONE,
        made: int | None = None,
        counts: bool = True,
    ) -> tuple[float, float]:
        """One window of each side on the same fresh inputs; returns the time of the calls of each, in seconds.

        Args:
            look: what is looked at in the candidate's window. With harsher inputs its time is none.
            made: how many of the candidate's calls are made, if not all.
            counts: whether it is none of those that only find lengths: others of as many calls follow.

        Raises:
            ProtocolError: the candidate did not stand still in several rounds in a row. One such round is repeated.
        """
        for _ in range(_MOST_LOST):
            times = self._make(staged, candidate_calls, baseline_calls, look, made, counts)
            if not self.record.round_is_lost():
                return times
        raise protocol.ProtocolError("it ran on, round after round, while the judge had stopped it")

    def _make(
        self,
        staged: int,
        candidate_calls: int,
        baseline_calls: int,
        look: Look,
        made: int | None,
        counts: bool,
    ) -> tuple[float, float]:
        made = candidate_calls if made is None else made
        with self.record.stage("inputs"):
            inputs = self._reference.many_inputs(self._next_input, staged)
            self._next_input += staged
            watch = self._watch if look is not Look.NONE else None
            if watch is not None:
                watch.begin(look, inputs, made)
        with self.record.stage("staging"):
            outputs, room = self._places(candidate_calls)
            given = inputs[:candidate_calls]
            if self._watch is not None:
                room = max(room, self._watch.room())
            ahead = self.staged_ahead()
            self._impose()
            if self._kept_back:
                tree = self._exchange.announce(given, room)
            else:
                self._exchange.make_room(room)
                tree = self._exchange.share(given)
            body = self._order(tree, outputs)
            if body is not ahead:
                self._runner.send(FrameKind.STAGE, body)
                self._expect(FrameKind.STAGED)
        order = [True, False]
        self._random.shuffle(order)
        times = {}
        for of_candidate in order:
            first = of_candidate is order[0]
            if of_candidate:
                times[True] = self._candidate_window(made, given, outputs, look, first=first)
            else:
                with self._runner.suspended() as standing:
                    if self._turning is not None:
                        self._turning.look(candidate=False, first=first)
                    with self.record.stage("baseline"):
                        times[False] = self._baseline_window(inputs[:baseline_calls], watch)
                    if counts and look is Look.NONE:
                        with self.record.stage("calibration"):
                            self._overheads.calibrate(candidate_calls)
                    self.record.stood(standing)
        if counts and self._kept_back and not self._reference.changed_state:
            # The runner makes its tensors while the next inputs are drawn.
            self._runner.send(FrameKind.STAGE, body)
            self._ahead = body
        return times[True], times[False]

    def staged_ahead(self) -> bytes | None:
        """What a runner has staged since the last window."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._expect(FrameKind.STAGED)
        return ahead

    def _impose(self) -> None:
        """Have the calls of a window begin where those of the reference begin, if they depend on earlier ones."""
        state = self._reference.changed_state
        if state:
            self._runner.send(FrameKind.IMPOSE, encode_tree(self._exchange.share(state)))
            self._expect(FrameKind.STAGED)

    def _places(self, calls: int) -> tuple[list[Any], int]:
        if calls not in self._places_of:
            self._places_of = {calls: places(self._reference.like, calls, self._device)}
        return self._places_of[calls]

    def _order(self, tree: Any, outputs: list[Any]) -> bytes:
        """The order to stage. Rounds of a candidate are alike, and to describe hundreds of tensors takes its time."""
        known = self._ordered
        if known is not None and known[1] is outputs and known[0] == tree and _only_tensors(tree):
            return known[2]
        order = {"inputs": tree, "outputs": outputs, "announced": self._kept_back, "ready": self._allocated_bytes}
        body = encode_tree(order)
        self._ordered = (tree, outputs, body)
        return body

    def _candidate_window(self, calls: int, inputs: list[Any], outputs: list[Any], look: Look, *, first: bool) -> float:
        """The time of a window of so many calls, for which inputs and places of outputs are staged."""
        watch = self._watch if look is not Look.NONE else None
        harsh = watch.harsh if watch is not None else {}
        usual = [index for index in range(calls) if index not in harsh]
        chosen = self._random.sample(usual, min(len(usual), self._verified_calls))
        if self._device == "cuda" and self._reference.changed_state and self._reference.overwrites():
            # Outputs that lie in the state are copied when all calls have been made.
            chosen = [calls - 1]
        body = encode_tree({"count": calls, "watch": None})
        late_s, ran_s = 0.0, {}
        if self._turning is not None:
            late_s = self._turning.turn(lambda: self._share(inputs), first=first)
            self._begin_look(calls, look)
            started = time.perf_counter()
            self._runner.send(FrameKind.WINDOW, body)
        else:
            self._begin_look(calls, look)
            with self._runner.suspended() as standing:
                self._share(inputs)
                self.record.stood(standing)
                ran_s = self._runner.ran_s()
                started = time.perf_counter()
                self._runner.send(FrameKind.WINDOW, body)
        self._expect(FrameKind.DONE if self._turning is None else FrameKind.CALLED, spin=self._turning is not None)
        window_s = self._runner.heard_at - started
        exported_s = 0.0
        if self._turning is not None:
            self._expect(FrameKind.DONE, spin=True)
            exported_s = self._runner.heard_at - started - window_s
        else:
            late_s = self.record.beyond_s(ran_s, self._runner.ran_s(), window_s)
        self.record.spent("candidate", window_s + late_s + exported_s)
        # Now, before anything that was left undone could still be done.
        with self.record.stage("verification"):
            copies = [self._exchange.collect(self._reference.like, outputs[index]) for index in (*chosen, *harsh)]
            telemetry = self._expect(FrameKind.FACTS)
            if watch is None:
                self.record.hear(telemetry, window_s - self._message_s, calls)
            made = dict(zip(chosen, copies, strict=False))
            for index, trial in self._reference.called_in_order(inputs, chosen).items():
                actual = made[index]
                wrong = compare_values(trial.expected, actual, self._limit)
                if wrong is not None:
                    finding = self._replay(inputs, index, actual, wrong)
                    raise WrongWindow(wrong, finding, [*self._reference.changed_state])
            self._read_again(outputs, [*chosen, *harsh], copies)
            if watch is not None:
                for call, actual in zip(harsh.values(), copies[len(chosen) :], strict=True):
                    watch.bears(call, actual)
                if look is Look.LISTED:
                    wrong = watch.heard(self._expect(FrameKind.FACTS), inputs, calls)
                else:
                    wrong = watch.changed(inputs[:calls], look)
                if wrong is not None:
                    raise WrongWindow(wrong)
        if look is Look.NONE and self._turning is not None:
            self.record.exported(exported_s)
        self._earlier = inputs[calls - 1]
        export_s = self._overheads.export_cost(len(inputs)) * calls / len(inputs)
        total_s = window_s + late_s
        if self._turning is not None:
            total_s += max(0.0, exported_s - export_s - max(_EXPORT_SLACK_S, self._export_slack * export_s))
            spent_s = total_s - self._around_s()
        else:
            spent_s = total_s - self._around_s() - export_s
        least_s = self._least_s(export_s)
        if look is Look.NONE:
            self.record.moved(spent_s, least_s)
        return max(spent_s, total_s * 0.01, least_s)

    def _around_s(self) -> float:
        """What a window takes without calls."""
        ordered_s = self._order_s if self._device == "cuda" else self._message_s
        return ordered_s + self._overheads.empty_window()[0]

    def _begin_look(self, calls: int, look: Look) -> None:
        """Have a runner begin to list, before it is given its inputs and its order."""
        if self._watch is not None and look is Look.LISTED:
            order = {"count": calls, "watch": self._watch.order()}
            self._runner.send(FrameKind.WINDOW, encode_tree(order))
            self._expect(FrameKind.STAGED, spin=self._device == "cuda")

    def _share(self, inputs: list[Any]) -> None:
        if self._kept_back:
            with self.record.stage("inputs"):
                self._exchange.share(inputs)

    def _replay(self, inputs: list[Any], index: int, actual: Any, wrong: Mismatch) -> Finding | None:
        """Whether a wrong output is that of a call before it in this window, or of the last of the window before.

        Where calls depend on earlier ones, what these gave may be part of their state.
        """
        if self._reference.changed_state:
            return None
        earlier = [*reversed(inputs[:index]), *([] if self._earlier is None else [self._earlier])]
        for other in earlier:
            if is_replay(self._reference.expected(other), actual, self._limit, wrong):
                return replay("an output of a timed call equals that of a call before it")
        return None

    def _read_again(self, outputs: list[Any], chosen: list[int], copies: list[Any]) -> None:
        """What was written is final: the device was idle when the window ended."""
        if not self._reads_again:
            return
        for index, copied in zip(chosen, copies, strict=True):
            changed = compare_bytes(copied, self._exchange.collect(self._reference.like, outputs[index]))
            if changed is not None:
                evidence = "an output of a timed call changed after the window had ended"
                raise WrongWindow(changed, Finding("late_write", Severity.HACK, evidence, checker="judge"))

    def _baseline_window(self, inputs: list[Any], watch: Watch | None) -> float:
        if self._reference.facts["mutates_inputs"]:
            inputs = copy.deepcopy(inputs)
        elif watch is not None:
            # Harsher ones are used again, and the reference may change these alone.
            inputs = [copy.deepcopy(given) if index in watch.harsh else given for index, given in enumerate(inputs)]
        calls = len(inputs)
        rehearse(self._device)
        self._flush()
        if self._device == "cpu":
            host_memory.ready(self._allocated_bytes * calls)
        if self._device == "cuda":
            result = window(self._reference.model, inputs, self._device)
        else:
            scratch = self._overheads.scratch(calls)
            result = window(self._reference.model, inputs, self._device, scratch.keep)
        self._reference.restore()
        export_s = self._overheads.export_cost(calls) if self._device != "cuda" else 0.0
        spent_s = result.calls_s - export_s - self._overheads.empty_window()[1]
        return max(spent_s, result.calls_s * 0.01, self._least_s(export_s))

    def _least_s(self, export_s: float) -> float:
        """What moving the bytes of the calls takes at least, on either side, by what copying their outputs takes.

        A candidate that puts its results in their places by itself saves the export, which is taken off all the same.
        Of its inputs it may not need more than it has outputs.
        """
        return self._copy_share * export_s if self._device != "cuda" else 0.0

    def telemetry(self, calls: tuple[int, int]) -> dict[str, Any]:
        """For the profile."""
        found: dict[str, Any] = {
            "calls_per_window": calls[0],
            "baseline_calls_per_window": calls[1],
            "message_us": self._message_s * 1e6,
            "export_us": self._overheads.export_cost(calls[0]) * 1e6,
            "empty_window_us": self._around_s() * 1e6,
            **self.record.telemetry(calls[0]),
        }
        if self._turning is not None:
            found |= self._turning.telemetry()
        return found


def _allocated_bytes(inputs: Any, outputs: Any) -> list[int]:
    """Sizes of tensors that a call may allocate: its outputs, and one between them and its inputs."""
    between = max((tensor.nbytes for tensor in tensors(inputs)), default=0)
    return [between, *(tensor.nbytes for tensor in tensors(outputs))]


def _only_tensors(tree: Any) -> bool:
    """Whether there is nothing else in a tree: numbers may be equal and yet of different types."""
    if isinstance(tree, list | tuple):
        return all(map(_only_tensors, tree))
    if isinstance(tree, dict):
        return all(map(_only_tensors, tree.values()))
    return isinstance(tree, TensorLeaf)

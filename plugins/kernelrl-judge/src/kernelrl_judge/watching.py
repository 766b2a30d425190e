"""Watched windows: who computes in timed calls, what they change, and whether they bear harsher inputs, too.

Between a trial and a timed call a candidate can tell, by its frames, by addresses, or by counting. So a measurement has
some windows more, which are not counted, in pairs, and nobody knows before where among the others they are.

- One has an order like that of any other. Some of its calls have the inputs of the probe `stress`, and afterwards the
  runner hands back the inputs of some calls, and says in what memory outputs lay.
- Where calls of the reference change its state there is one more like it, without such inputs, and the runner hands
  back the state.
- In the other torch's operators are written down, as in a trial, and the runner says afterwards which of the outputs
  share memory. A candidate can tell that this is done. The only reason to do something else then is to be faster when
  it is not: so this window is timed, too, and its calls may not take much longer than those that count.
"""

from __future__ import annotations

import enum
import math
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch, Severity
from kernelrl_judge import protocol, stress, wording
from kernelrl_judge.comparing import compare_bytes, compare_described, tolerance
from kernelrl_judge.computing import computing
from kernelrl_judge.effects import described_tensors, overwritten, wrong_inputs, wrong_memory, wrong_state
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.gathering import as_read
from kernelrl_judge.input_indices import FIRST_TIMED
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.operators import listing_cost
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference
from kernelrl_judge.running import Runner
from kernelrl_judge.samples import sampled
from kernelrl_judge.stress_calls import StressCall, judged
from kernelrl_judge.stress_effects import left_in_inputs
from kernelrl_judge.trees import tensors
from kernelrl_judge.value_trees import decode_tree, encode_tree

__all__ = ["WITHIN", "Look", "Watch"]

WITHIN = 5
_FARTHER = 3
"""One lies within the first five rounds that count, of which there are no fewer, the next within three times as many,
and so on: who is honest until the last of them has no more than a third of the rounds left."""
_LOOKED_AT = 2
_LARGE_BYTES = 16 << 20
"""Inputs of a call of which only one is handed back."""
_MOST_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
_PLACES = 1 << 30
_MORE_LOOKS = 4
"""Listed windows more, where those before were slow: others may have had the processor."""
_SLOWER = 2.0
_SLOWER_S = {"cuda": 200e-6, "cpu": 500e-6}
"""A window may take longer, beyond what listing costs."""
_SLOWEST = 0.9
"""Of the windows that count, with which the others are compared."""
_COST_SLACK = 2.0
"""Operators on many tensors cost more than those with which that was measured."""
_EXPORT = "aten::_foreach_copy_"
"""With which a runner writes the outputs."""


class Look(enum.Enum):
    """What is looked at in a window."""

    NONE = enum.auto()
    HARSH = enum.auto()
    STATE = enum.auto()
    LISTED = enum.auto()


class Watch:
    """The watched windows of one measurement.

    Args:
        expect: receives the next frame, which has to be of a kind.
        harsh: calls of the probe `stress` that the candidate has passed, with the parameters that it has now.
    """

    def __init__(
        self,
        runner: Runner,
        reference: Reference,
        exchange: Exchange,
        expect: Callable[..., protocol.Frame],
        settings: EvaluationSettings,
        harsh: Sequence[StressCall] = (),
    ) -> None:
        self._runner = runner
        self._reference = reference
        self._exchange = exchange
        self._expect = expect
        self._settings = settings
        self._limit = tolerance(settings)
        outline = _outline(reference.like)
        # What they have to give is known for calls that begin with what was constructed.
        alone = not harsh or not reference.depends_on_calls()
        self._harsh = [call for call in harsh if alone and _outline(call.trial.expected) == outline]
        # Nobody else may know when.
        self._random = random.SystemRandom()
        self._next, self._end = 0, min(WITHIN, settings.timing_trials)
        self._draw(0)
        first = reference.inputs(FIRST_TIMED)
        size = leaves_bytes(first)
        few = _LOOKED_AT if size <= _LARGE_BYTES else 1
        self._looks = "inputs" in settings.probes
        self._samples = size > _MOST_BYTES[reference.device]
        self._few = few if self._looks and not (self._samples and reference.facts["mutates_inputs"]) else 0
        self._seen_bytes = self._few * leaves_bytes(self._seen([first], 0))
        self._calls: list[int] = []
        self._listed_us: list[float] = []
        self._costs_us: list[float] = []
        self._cost_s = 0.0
        self._costs = listing_cost() if "operators" in settings.probes else (0.0, 0.0)
        self._more = _MORE_LOOKS
        self.harsh: dict[int, StressCall] = {}
        """Calls of the window that have the inputs of the probe `stress`."""
        self.findings: tuple[Finding, ...] = ()
        self.overwritten: tuple[Finding, ...] = ()
        self.operators: list[str] = []
        """Operators of torch that computed in the windows."""

    def release(self) -> None:
        """Let go of values, after the last window."""
        self._harsh.clear()
        self.harsh.clear()

    def due(self, counted: int) -> bool:
        """Whether the window comes now, after so many that count."""
        if counted != self._next:
            return False
        self._draw(self._end)
        return True

    def _draw(self, begin: int) -> None:
        self._end = begin * _FARTHER if begin else self._end
        self._next = begin + self._random.randrange(max(1, self._end - begin))

    def room(self) -> int:
        """Bytes that inputs of calls need when they are handed back: reserved in every round, watched or not."""
        return self._seen_bytes + leaves_bytes(self._reference.changed_state)

    @property
    def looks_at_state(self) -> bool:
        """Whether there are windows after which the state is looked at."""
        return self._looks and bool(self._reference.changed_state)

    def begin(self, look: Look, inputs: list[Any], calls: int) -> None:
        """Choose the calls of a window, and change the inputs of some of them."""
        self._calls = self._random.sample(range(calls), min(calls, self._few))
        # Who is honest on harsher inputs alone meets others, too.
        half = (calls + self._random.randrange(2)) // 2
        count = min(len(self._harsh), half) if look is Look.HARSH else 0
        places = self._random.sample(range(calls), count)
        self.harsh = dict(zip(places, self._random.sample(self._harsh, count), strict=True))
        for place, call in self.harsh.items():
            inputs[place] = call.trial.inputs

    def order(self) -> dict[str, Any]:
        """What the order of a listed window says of it."""
        return {"calls": [] if self._samples else self._calls, "operators": "operators" in self._settings.probes}

    def heard(self, frame: protocol.Frame, inputs: Sequence[Any], calls: int) -> Mismatch | None:
        """Judges what the runner says of a listed window: a mismatch if outputs share memory."""
        said = decode_tree(frame.body)
        if not isinstance(said, dict):
            raise protocol.ProtocolError("a watched window without what was seen")
        found = said.get("operators")
        # What a call goes through on the average: work on little does not become much by many calls.
        each = [
            [entry[0], *(elements // calls for elements in entry[1:])]
            for entry in (found if isinstance(found, list) else ())
            if isinstance(entry, list) and entry and all(type(elements) is int for elements in entry[1:])
        ]
        self._cost_s = self._cost(said)
        values = as_read(self._reference, inputs[0]), self._reference.like
        names = computing([entry for entry in each if entry[0] != _EXPORT], values)
        self.operators += [name for name in names if name not in self.operators]
        if not self._few or self._samples:
            return None
        if said.get("overwrites") and calls > 1 and not self.overwritten:
            self.overwritten = overwritten(said["overwrites"], self._reference)
        return wrong_memory(said.get("shares"), self._reference.facts["shares"])

    def _cost(self, said: Mapping[str, Any]) -> float:
        """What listing has cost, in seconds."""
        own_s, seen = said.get("looking_s"), said.get("listed")
        if not isinstance(own_s, float) or not math.isfinite(own_s) or not isinstance(seen, list):
            raise protocol.ProtocolError("a watched window without what it cost")
        if [*map(type, seen)] != [int, int]:
            raise protocol.ProtocolError("a watched window without what it cost")
        return own_s + _COST_SLACK * sum(each_s * count for each_s, count in zip(self._costs, seen, strict=True))

    def telemetry(self) -> dict[str, float]:
        """What a call of a listed window took without what listing costs, and that cost, in microseconds."""
        if not self._listed_us:
            return {}
        return {"listed_us": min(self._listed_us), "listing_us": statistics.median(self._costs_us)}

    def took(self, spent_s: float, calls: int) -> None:
        """Takes note of how long the calls of a listed window took."""
        self._costs_us.append(self._cost_s / calls * 1e6)
        self._listed_us.append((spent_s - self._cost_s - _SLOWER_S[self._reference.device]) / calls * 1e6)

    def looks_again(self, counted_us: Sequence[float]) -> bool:
        """Whether calls were slower while operators were listed than in windows that count, and are to be seen again.

        Args:
            counted_us: what a call took in each window that counts, as those of listed windows were told.
        """
        usual_us = sorted(counted_us)[int(_SLOWEST * (len(counted_us) - 1))]
        least_us = min(self._listed_us, default=0.0)
        if least_us <= _SLOWER * usual_us:
            return False
        if self._more:
            self._more -= 1
            return True
        evidence = (
            f"calls took {least_us:.0f} us while operators were listed, without what that costs, and "
            f"{statistics.median(counted_us):.0f} us otherwise"
        )
        self.findings += (Finding("slower_when_watched", Severity.SUSPECT, evidence, checker="judge"),)
        return False

    def bears(self, call: StressCall, actual: Any) -> None:
        """Judges the output of a call on harsher inputs."""
        self._tell(call, judged(call, actual, self._settings, self._reference.dtype).wrong)

    def _bears_inputs(self, call: StressCall, after: Any) -> None:
        """Judges what a call left in harsher inputs, of which the reference may change other parts."""
        shares = self._reference.facts["shares"]
        self._tell(call, left_in_inputs(call, after, shares, self._settings, self._reference.dtype))

    def _tell(self, call: StressCall, wrong: Mismatch | None) -> None:
        if wrong is None or self.findings:
            return
        how = f"in a timed call, and right in single ones: {wording.incorrect(wrong)}"
        self.findings, _ = stress.concluded(self._settings, (call.part, how), None)

    def changed(self, inputs: list[Any], look: Look) -> Mismatch | None:
        """Has the inputs of some calls handed back, and the state, and judges what the calls left in them.

        Args:
            inputs: of each call of the window.
        """
        if not self._looks:
            return None
        state = self._reference.changed_state if look is Look.STATE else {}
        begin = self._random.randrange(_PLACES) if self._samples else -1
        order = {"calls": self._calls, "sampled": begin, "held": described_tensors(state)}
        self._runner.send(FrameKind.RETURN, encode_tree(order))
        said = decode_tree(self._expect(FrameKind.RESULT).body)
        if not isinstance(said, dict) or not isinstance(said.get("state"), dict):
            raise protocol.ProtocolError("not what a window has left")
        if said.get("overwrites") and not self.overwritten:
            self.overwritten = overwritten(said["overwrites"], self._reference)
        return (
            wrong_memory(said.get("shares"), self._reference.facts["shares"])
            or self._changed_inputs(inputs, said.get("inputs"), begin)
            or self._changed_state(inputs, state, said["state"])
        )

    def _seen(self, inputs: Sequence[Any], begin: int) -> list[Any]:
        """What a runner hands back of the inputs of calls: all of them, or samples of what is large."""
        return [sampled(values, begin) for values in inputs] if self._samples else [*inputs]

    def _changed_inputs(self, inputs: list[Any], described: Any, begin: int) -> Mismatch | None:
        sent = self._seen([inputs[index] for index in self._calls], begin)
        wrong = compare_described(sent, described, self._reference.device)
        if wrong is not None:
            return Mismatch("inputs", wrong.output.partition("]")[2])
        after = self._exchange.collect(sent, described)
        if self._samples:
            wrong = compare_bytes(sent, after)
            return None if wrong is None else Mismatch("inputs", wrong.output.partition("]")[2])
        left = dict(zip(self._calls, after, strict=True))
        for index in self.harsh.keys() & left.keys():
            self._bears_inputs(self.harsh[index], left[index])
        usual = left.keys() - self.harsh.keys()
        for index, trial in self._reference.called_in_order(inputs, usual, effects=True).items():
            wrong = wrong_inputs(trial, left[index], self._reference.facts["shares"], self._limit)
            if wrong is not None:
                return wrong
        return None

    def _changed_state(
        self, inputs: list[Any], state: Mapping[str, torch.Tensor], described: dict[str, Any]
    ) -> Mismatch | None:
        # Who lacks any is told of after the trials. What is not saved may be scratch memory.
        wanted = {name: state[name] for name in state if name in described and name in self._reference.state}
        if not wanted:
            return None
        found = {name: described[name] for name in wanted}
        wrong = compare_described(wanted, found, self._reference.device)
        if wrong is not None:
            return wrong
        trial = self._reference.called_in_order(inputs, [len(inputs) - 1], effects=True)[len(inputs) - 1]
        # Errors of the calls add up.
        room = math.sqrt(len(inputs))
        limit = attrs.evolve(self._limit, atol=self._limit.atol * room, rtol=self._limit.rtol * room)
        return wrong_state(trial, self._exchange.collect(wanted, found), limit)


def _outline(value: Any) -> list[tuple[torch.Size, torch.dtype]]:
    return [(tensor.shape, tensor.dtype) for tensor in tensors(value)]

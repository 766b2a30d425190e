"""Trials and harder inputs by direct calls, where nothing is recorded.

Each trial has fresh inputs, alternately in new memory and in that of the trial before. The first trial has drawn
parameters. Free memory is poisoned, with one of two patterns. Inputs and state are compared with those that the
reference leaves. None of this needs a further call.

Operators of torch are listed in each call. The first call with new parameters may prepare weights, so its operators
count only if there is no other call.

A wrong output that equals the expected output of the call before was stored: finding `replay`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

import attrs

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch
from kernelrl_judge.peer.computing import computing
from kernelrl_judge.peer.memory import Exchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.probes.effects import described_tensors, lacking_state, wrong_inputs, wrong_state
from kernelrl_judge.probes.stress import Judged, StressCall, judged
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.layouts import leaves_bytes
from kernelrl_judge.protocol.trees import tensors
from kernelrl_judge.protocol.values import decode_tree, encode_tree
from kernelrl_judge.task.comparing import Tolerance, compare_described, compare_values, tolerance
from kernelrl_judge.task.parameters import Matched, drawn_parameters
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["Found", "Trials", "is_replay", "replay", "with_drawn"]

_MOST_KEPT_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
"""Inputs and outputs of a call that are kept beside those of the next."""
_MOST_STATE_BYTES = 2 << 30
_FEW_BYTES = 16 << 20
"""Inputs that are compared with what was sent in every trial; larger ones in one of them."""
_POISONS = {"cuda": (0xFF, 0x7B), "cpu": (0xFE, 0x7B)}
"""Bytes of free memory: not a number in every floating-point type, or a large negative one; and a large number."""
_REPLAY_STRICTNESS = 0.1
_REPLAY_WRONG_SHARE = 0.05


@attrs.frozen
class Found:
    """What the trials gave."""

    passed: int
    wrong: Mismatch | None = None
    """The first trial's that failed."""
    other_parameters: bool = False
    """Whether that trial had parameters of its own."""
    finding: Finding | None = None
    final: bool = False
    """Whether further trials would tell nothing more."""


@attrs.frozen
class _Left:
    """What a call did beside returning outputs, as the runner describes it."""

    inputs: Any
    """None where nobody asked."""
    state: dict[str, Any]


def is_replay(earlier: Any, actual: Any, limit: Tolerance, wrong: Mismatch) -> bool:
    """Whether a wrong output is what an earlier call had to give."""
    if (wrong.wrong_share or 0.0) < _REPLAY_WRONG_SHARE:
        return False
    narrow = attrs.evolve(limit, atol=limit.atol * _REPLAY_STRICTNESS, rtol=limit.rtol * _REPLAY_STRICTNESS)
    return compare_values(earlier, actual, narrow) is None


class Trials:
    """The calls of a candidate.

    Args:
        expect: receives the next frame, which has to be of a kind.
        lists: whether the probe `operators` may be made.
    """

    def __init__(
        self,
        runner: Runner,
        exchange: Exchange,
        expect: Callable[[FrameKind], frames.Frame],
        settings: EvaluationSettings,
        device: str,
        *,
        lists: bool = False,
    ) -> None:
        self._runner = runner
        self._exchange = exchange
        self._expect = expect
        self._device = device
        self._limit = tolerance(settings)
        self._count = settings.trials
        self._probes = frozenset(settings.probes if settings.profile == "strict" else ())
        self._earlier: Any = None
        self._looked_at = secrets.randbelow(max(1, self._count))
        self._lists = lists and "operators" in self._probes
        self._called_last: Reference | None = None
        self._found: list[str] = []
        self.findings: tuple[Finding, ...] = ()
        """Suspicions that are no verdict."""
        self.operators: list[str] | None = None
        """Operators of torch that computed in the calls; None where they were not listed."""

    def run(self, reference: Reference, construct: Callable[[Reference], Matched]) -> Found:
        """Construct the candidate and call it on the inputs of every trial.

        Args:
            construct: has the candidate construct its model with the parameters of a reference; returns how these were
                found.

        Raises:
            What `expect` and `construct` raise.
        """
        state_bytes = leaves_bytes(reference.state)
        others = "parameters" in self._probes and self._count > 1 and 0 < state_bytes < _MOST_STATE_BYTES
        passed, failed = 0, None
        for index in range(self._count):
            used = with_drawn(reference, construct) if others and index == 0 else reference
            if used is reference and index <= int(others):
                construct(used)
            found = self._one(used, index)
            if found is None:
                passed += 1
                continue
            failed = failed or attrs.evolve(found, other_parameters=used is not reference)
            if found.final:
                break
        return Found(passed) if failed is None else attrs.evolve(failed, passed=passed)

    def _one(self, reference: Reference, index: int) -> Found | None:
        """One trial; None if it passes."""
        trial = reference.trial(index)
        back = index == self._looked_at or leaves_bytes(trial.inputs) <= _FEW_BYTES
        last = index == self._count - 1
        counts = not self._is_first(reference) or last
        described, left = self._called(reference, trial, index, back=back, reordered=last)
        if counts:
            self._take_note()
        wrong = compare_described(trial.expected, described, self._device)
        if wrong is not None:
            # Structure does not change from trial to trial: there is nothing more to learn.
            return Found(0, wrong, final=True)
        actual = self._exchange.collect(trial.expected, described)
        wrong = wrong_values(reference, trial.inputs, index, trial.expected, actual, self._limit)
        earlier, self._earlier = self._earlier, trial.expected if self._keeps(trial.expected) else None
        if wrong is not None:
            if earlier is not None and is_replay(earlier, actual, self._limit, wrong):
                return Found(0, wrong, finding=replay("an output equals that of the call before it"), final=True)
            return Found(0, wrong)
        wrong = self._wrong_effects(reference, trial, left)
        return None if wrong is None else Found(0, wrong, final=True)

    def _called(
        self, reference: Reference, trial: Trial, index: int, *, back: bool, reordered: bool
    ) -> tuple[Any, _Left]:
        """What the candidate returns, and what else the call did.

        Args:
            back: whether inputs are handed back.
            reordered: whether threads and programs take another order, on the processor.
        """
        state = reference.changed_state
        keeps = self._keeps(trial.inputs)
        back = back and keeps and "inputs" in self._probes
        order = {
            "keep": keeps and "addresses" in self._probes,
            # Every second call finds its inputs where those before lay.
            "again": index % 2 == 1,
            "back": back,
            "reordered": reordered and "order" in self._probes and self._device == "cpu",
            "operators": self._lists,
            "held": described_tensors(state),
            "poison": _POISONS[self._device][index % 2] if "poison" in self._probes else -1,
            "poisoned": [leaf.numel() * leaf.element_size() for leaf in tensors(trial.expected)],
        }
        room = leaves_bytes(trial.expected) + leaves_bytes(state)
        self._exchange.make_room(room + (leaves_bytes(trial.inputs) if back else 0))
        order |= self._exchange.share({"arguments": trial.inputs, "state": dict(state)})
        self._runner.send(FrameKind.CALL, encode_tree(order))
        described = decode_tree(self._expect(FrameKind.RESULT).body)
        if self._lists:
            facts = decode_tree(self._expect(FrameKind.FACTS).body)
            self._found = computing(facts, trial.inputs, trial.expected)
        if not isinstance(described, list) or len(described) != 3 or not isinstance(described[2], dict):
            raise frames.ProtocolError("a result without what else the call did")
        return described[0], _Left(*described[1:])

    def stressed(self, call: StressCall, used: Reference) -> Judged:
        """Make a call of the probe `stress`.

        Args:
            used: the reference whose parameters the candidate has.
        """
        described, _ = self._called(used, Trial(call.inputs, call.expected), 0, back=False, reordered=True)
        if call.family != "sizes":
            # A kernel for some sizes may leave others to a library.
            self._take_note()
        wrong = compare_described(call.expected, described, self._device)
        return Judged(wrong) if wrong is not None else judged(call, self._exchange.collect(call.expected, described))

    def _is_first(self, reference: Reference) -> bool:
        """Whether the next call is the first with the parameters of a reference."""
        before, self._called_last = self._called_last, reference
        return reference is not before

    def _take_note(self) -> None:
        """The operators of the last call count."""
        if self._lists:
            self.operators = [*dict.fromkeys([*(self.operators or ()), *self._found])]

    def _wrong_effects(self, reference: Reference, trial: Trial, left: _Left) -> Mismatch | None:
        """How a call with right outputs leaves something else in inputs and state than the reference does."""
        self._tell(lacking_state(reference, trial.state_after, left.state))
        if left.inputs is not None:
            wrong = compare_described(trial.inputs, left.inputs, self._device)
            if wrong is not None:
                return Mismatch("inputs", wrong.output)
            after = self._exchange.collect(trial.inputs, left.inputs)
            wrong = wrong_inputs(trial, after, reference.facts["returned_inputs"], self._limit)
            if wrong is not None:
                return wrong
        wanted = {name: tensor for name, tensor in trial.state_after.items() if name in left.state}
        wrong = compare_described(wanted, {name: left.state[name] for name in wanted}, self._device)
        return wrong or wrong_state(trial, self._exchange.collect(wanted, left.state), self._limit)

    def _tell(self, findings: tuple[Finding, ...]) -> None:
        known = {finding.rule for finding in self.findings}
        self.findings += tuple(finding for finding in findings if finding.rule not in known)

    def _keeps(self, values: Any) -> bool:
        return leaves_bytes(values) <= _MOST_KEPT_BYTES[self._device]


def with_drawn(reference: Reference, construct: Callable[[Reference], Matched]) -> Reference:
    """Have a candidate construct its model with drawn parameters; returns the reference that has them.

    Parameters of other names are found by the values of the constructor, so these come first.
    """
    used = drawn_parameters(reference, construct(reference.with_other_parameters()))
    construct(used)
    return used


def replay(evidence: str) -> Finding:
    """The finding that an output was looked up."""
    return finding("replay", evidence)

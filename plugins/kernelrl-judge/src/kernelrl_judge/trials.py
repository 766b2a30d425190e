"""The calls of a candidate that have to be right, and what else they find out.

Each trial has inputs of its own. What a candidate could recognise changes from one to the next: new bytes lie where
the bytes before them lay, or where nothing lay before; one trial has parameters of its own; memory that is free holds
one pattern, then another; inputs are compared with what was sent. None of it costs a call more (`Probe`).

Operators are listed in every call: a candidate that tells listed calls from others has none left in which it could gain
by it. The first call of a model may prepare what later ones use: what it computes does not count, unless there is no
other, and on a GPU it is not listed. Under stress, where it would count, it is made again if it computes.

An output that equals what an earlier call had to give, and not what this one has to, was looked up and not computed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Mismatch, Severity
from kernelrl_judge import protocol
from kernelrl_judge.comparing import Tolerance, compare_described, compare_values, tolerance
from kernelrl_judge.computing import computing, raced
from kernelrl_judge.earlier_calls import EarlierCalls
from kernelrl_judge.effects import (
    described_tensors,
    lacking_state,
    other_kept,
    other_state,
    overwritten,
    workspace_returned,
    wrong_inputs,
    wrong_memory,
    wrong_state,
)
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.gathering import as_read
from kernelrl_judge.layouts import leaves_bytes
from kernelrl_judge.protocol import FrameKind
from kernelrl_judge.reference import Reference, Trial
from kernelrl_judge.running import Runner
from kernelrl_judge.stress_calls import Judged, StressCall, judged
from kernelrl_judge.stress_effects import left_in_inputs, left_in_state
from kernelrl_judge.value_trees import decode_tree, encode_tree

__all__ = ["Found", "Trials", "is_replay", "replay"]

_MOST_KEPT_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
"""Inputs and outputs of a call that are kept beside those of the next."""
_MOST_STATE_BYTES = 2 << 30
_FEW_BYTES = 16 << 20
"""Inputs that are compared with what was sent in every trial; larger ones in one of them. Also of parameters, of which
others are left out."""
_MOST_NAMES = 64
_OUTPUTS_KEPT = 8
_OUTPUTS_KEPT_BYTES = 128 << 20
"""Calls whose outputs are kept to see whether later ones leave them."""
_MOST_SUMMED_BYTES = 4 << 20
"""Parameters, inputs and outputs whose memory is summed up in every call that is listed; more of them in one trial."""
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
    shares: Any
    overwrites: Any
    held_bytes: Any


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
        expect: Callable[[FrameKind], protocol.Frame],
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
        self._overlap = True
        self._looked_at = secrets.randbelow(max(1, self._count))
        self._lists = lists and "operators" in self._probes
        self._summed = secrets.randbelow(max(1, self._count - 1)) + int(self._count > 1)
        self._called_last: Reference | None = None
        self._earlier_calls = EarlierCalls(runner, exchange, expect, device)
        self._found: list[str] = []
        self._raced = 0
        self.printed_bytes = 0
        """What the candidate had printed when its first call was over."""
        self.findings: tuple[Finding, ...] = ()
        """Suspicions that are no verdict."""
        self.operators: list[str] | None = None
        """Operators of torch that computed in the calls; None where they were not listed."""
        self.raced_elements = 0
        """Elements of a call that a program of a launch read and another of the same launch had written."""

    def run(self, reference: Reference, construct: Callable[[Reference], object]) -> Found:
        """Construct the candidate and call it on the inputs of every trial.

        Args:
            construct: has the candidate construct its model with the parameters of a reference.

        Raises:
            What `expect` and `construct` raise.
        """
        state_bytes = leaves_bytes(reference.state)
        others = "parameters" in self._probes and self._count > 1 and 0 < state_bytes < _MOST_STATE_BYTES
        passed, failed = 0, None
        for index in range(self._count):
            used = reference.with_other_parameters() if others and index == 0 else reference
            if index <= int(others):
                construct(used)
            found = self._one(used, index)
            if index == 0:
                self.printed_bytes = self._runner.printed_bytes()
            if found is None:
                passed += 1
                continue
            failed = failed or attrs.evolve(found, other_parameters=used is not reference)
            if found.final:
                break
        if failed is None and "inputs" in self._probes:
            lost, wrong = self._earlier_calls.read_again(inputs=not reference.facts["mutates_inputs"])
            self._tell(overwritten(lost, reference))
            failed = None if wrong is None else Found(0, wrong, final=True)
        return Found(passed) if failed is None else attrs.evolve(failed, passed=passed)

    def _one(self, reference: Reference, index: int) -> Found | None:
        """One trial; None if it passes."""
        trial = reference.trial(index)
        back = "inputs" in self._probes
        back = back and (index == self._looked_at or leaves_bytes(trial.inputs) <= _FEW_BYTES)
        self._overlap = reference.facts["overlaps"] or not self._limit.strict
        state = self._state(reference)
        looks = "inputs" in self._probes and index in (self._looked_at, self._count - 1)
        still = self._still(reference) if looks else {}
        kept = dict(trial.kept) if looks and leaves_bytes(dict(trial.kept)) <= _FEW_BYTES else {}
        counts = not self._is_first(reference) or index == self._count - 1
        # On a GPU a first call may measure which of its kernels is the fastest.
        lists = counts or self._device == "cpu"
        sums = index == self._summed or self._is_summed(reference, trial)
        held = {**still, **kept}
        last = index == self._count - 1
        described, left = self._called(
            reference, trial, index, state=state, still=held, back=back, lists=lists, sums=sums, reordered=last
        )
        if counts:
            self._take_note()
        wrong = compare_described(trial.expected, described, self._device)
        if wrong is not None:
            # Structure does not change from trial to trial: there is nothing more to learn.
            return Found(0, wrong, final=True)
        actual = self._exchange.collect(trial.expected, described)
        wrong = compare_values(trial.expected, actual, self._limit)
        earlier, self._earlier = self._earlier, trial.expected if self._keeps(trial.expected) else None
        if wrong is not None:
            if earlier is not None and is_replay(earlier, actual, self._limit, wrong):
                return Found(0, wrong, finding=replay("an output equals that of the call before it"), final=True)
            return Found(0, wrong)
        self._earlier_calls.took(actual, self._outputs_kept(trial.expected))
        if left is not None:
            self._look_at_kept(kept, left.state)
        return None if left is None else self._left(reference, trial, left, still)

    def _called(
        self,
        reference: Reference,
        trial: Trial,
        index: int,
        *,
        state: Mapping[str, torch.Tensor] = MappingProxyType({}),
        still: Mapping[str, torch.Tensor] = MappingProxyType({}),
        back: bool = False,
        lists: bool = False,
        sums: bool = False,
        reordered: bool = False,
    ) -> tuple[Any, _Left | None]:
        """What the candidate returns, and what else the call did.

        Args:
            state: what it is given before the call, and hands back after it.
            still: what it hands back as well.
            lists: whether operators are listed, where the probe is made.
            sums: whether memory is summed up then.
            reordered: whether threads and programs take another order, on the processor.
        """
        lists = lists and self._lists
        room = leaves_bytes(trial.expected)
        held = {**state, **still}
        keeps = self._keeps(trial.inputs)
        back = back and keeps
        again = index % 2 == 1
        order = {
            "keep": keeps and "addresses" in self._probes,
            # Every second call finds its inputs where those before lay.
            "again": again,
            "back": back,
            "reordered": reordered and "order" in self._probes and self._device == "cpu",
            "operators": lists,
            "sums": sums,
            "overlap": self._overlap,
            "effects": "inputs" in self._probes,
            "held": described_tensors(held),
            "keep_outputs": self._outputs_kept(trial.expected),
            "hold": self._earlier_calls.give(trial.inputs, again=again) and "inputs" in self._probes,
            "poison": _POISONS[self._device][index % 2] if "poison" in self._probes else -1,
            "poisoned": [leaf.numel() * leaf.element_size() for leaf in _tensors(trial.expected)],
        }
        self._exchange.make_room(room + (leaves_bytes(trial.inputs) if back else 0) + leaves_bytes(held))
        order |= self._exchange.share({"arguments": trial.inputs, "state": dict(state)})
        self._runner.send(FrameKind.CALL, encode_tree(order))
        described = decode_tree(self._expect(FrameKind.RESULT).body)
        if lists:
            found = decode_tree(self._expect(FrameKind.FACTS).body)
            values = as_read(reference, trial.inputs), trial.expected
            self._found, self._raced = computing(found, values), raced(found)
        if not order["effects"]:
            return described, None
        if not isinstance(described, list) or len(described) != 6 or not isinstance(described[2], dict):
            raise protocol.ProtocolError("a result without what else the call did")
        return described[0], _Left(*described[1:])

    def stressed(self, call: StressCall, used: Reference, settings: EvaluationSettings) -> Judged:
        """Make a call of the probe `stress`.

        Args:
            used: the reference whose parameters the candidate has.
        """
        back = call.left is not None or leaves_bytes(call.trial.inputs) <= _FEW_BYTES
        first, sums = self._is_first(used), self._is_summed(used, call.trial)
        back = back and "inputs" in self._probes
        state = self._state(used)
        how = {"state": state, "back": back, "lists": True, "sums": sums, "reordered": True}
        described, left = self._called(used, call.trial, 0, **how)
        if first and self._found:
            # The call may have prepared something: what it was is not done again.
            described, left = self._called(used, call.trial, 0, **how)
        if call.part != "sizes":
            # A kernel for some sizes may leave others to a library.
            self._take_note()
        wrong = compare_described(call.trial.expected, described, self._device)
        if wrong is not None:
            return Judged(wrong, None)
        found = judged(call, self._exchange.collect(call.trial.expected, described), settings, used.dtype)
        if found.wrong is not None or left is None:
            return found
        return attrs.evolve(found, wrong=self._left_under_stress(call, used, left, settings))

    def _left_under_stress(
        self, call: StressCall, used: Reference, left: _Left, settings: EvaluationSettings
    ) -> Mismatch | None:
        wrong = None
        if left.inputs is not None:
            wrong = compare_described(call.trial.inputs, left.inputs, self._device)
            if wrong is not None:
                return Mismatch("inputs", wrong.output)
            after = self._exchange.collect(call.trial.inputs, left.inputs)
            wrong = left_in_inputs(call, after, used.facts["shares"], settings, used.dtype)
        state = self._state(used)
        if call.left is not None:
            expected = call.left.trial.expected
            after = {name: expected[f"state {name}"] for name in state if f"state {name}" in expected}
            self._tell(lacking_state(used, after, left.state))
        wanted = {name: tensor for name, tensor in state.items() if name in left.state}
        wrong = wrong or compare_described(wanted, {name: left.state[name] for name in wanted}, self._device)
        # What of equal or hidden values is no copy, ordinary inputs do not show.
        wrong = wrong or wrong_memory(left.shares, [*used.facts["shares"], *call.trial.shares])
        return wrong or left_in_state(call, self._exchange.collect(wanted, left.state), settings, used.dtype)

    def _is_first(self, reference: Reference) -> bool:
        """Whether the next call is the first with the parameters of a reference."""
        before, self._called_last = self._called_last, reference
        return reference is not before

    def _is_summed(self, reference: Reference, trial: Trial) -> bool:
        return leaves_bytes((reference.state, trial.inputs, trial.expected)) <= _MOST_SUMMED_BYTES

    def _take_note(self) -> None:
        """The operators of the last call count, and its races."""
        if self._lists:
            self.operators = [*dict.fromkeys([*(self.operators or ()), *self._found])]
            self.raced_elements = max(self.raced_elements, self._raced)

    def _left(self, reference: Reference, trial: Trial, left: _Left, still: Mapping[str, torch.Tensor]) -> Found | None:
        """Judges what a call did beside returning outputs that are right.

        Args:
            still: what the reference leaves as it is.
        """
        self._tell(lacking_state(reference, trial.state_after, left.state))
        self._tell(overwritten(left.overwrites, reference))
        self._tell(workspace_returned(left.held_bytes, trial.expected, reference))
        wrong = self._inputs_changed(reference, trial, left.inputs)
        if wrong is None:
            wrong = wrong_memory(left.shares, reference.facts["shares"])
        if wrong is None:
            wanted = {**still, **trial.state_after}
            wanted = {name: tensor for name, tensor in wanted.items() if name in left.state}
            wrong = compare_described(wanted, {name: left.state[name] for name in wanted}, self._device)
        if wrong is None:
            after = self._exchange.collect(wanted, left.state)
            wrong = wrong_state(trial, {name: after[name] for name in after if name in reference.state}, self._limit)
            doubtful = {name: wanted[name] for name in wanted if name in still or name in reference.unsaved}
            self._tell(other_state(reference, doubtful, after, self._limit))
        return None if wrong is None else Found(0, wrong, final=True)

    def _look_at_kept(self, kept: Mapping[str, torch.Tensor], described: Mapping[str, Any]) -> None:
        alike = {
            name: tensor
            for name, tensor in kept.items()
            if name in described and compare_described(tensor, described[name], self._device) is None
        }
        after = self._exchange.collect(alike, {name: described[name] for name in alike}) if alike else {}
        self._tell(other_kept(kept, after, self._limit))

    def _tell(self, findings: tuple[Finding, ...]) -> None:
        known = {finding.rule for finding in self.findings}
        self.findings += tuple(finding for finding in findings if finding.rule not in known)

    def _inputs_changed(self, reference: Reference, trial: Trial, described: Any) -> Mismatch | None:
        if described is None:
            return None
        wrong = compare_described(trial.inputs, described, self._device)
        if wrong is not None:
            return Mismatch("inputs", wrong.output)
        after = self._exchange.collect(trial.inputs, described)
        return wrong_inputs(trial, after, reference.facts["shares"], self._limit)

    def _state(self, reference: Reference) -> dict[str, torch.Tensor]:
        """What the candidate is given anew: what calls leave there would make an output depend on their number."""
        return reference.changed_state

    def _still(self, reference: Reference) -> dict[str, torch.Tensor]:
        """State that the reference leaves as it is, or a part of it, if it is large."""
        changing = reference.facts["mutates_state"] | reference.statistics
        names = [name for name in reference.state if name not in changing]
        found: dict[str, torch.Tensor] = {}
        room = _FEW_BYTES
        for name in secrets.SystemRandom().sample(names, min(len(names), _MOST_NAMES)):
            room -= leaves_bytes(reference.state[name])
            if room < 0 and found:
                break
            found[name] = reference.state[name]
        return found

    def _outputs_kept(self, expected: Any) -> int:
        """Of how many calls outputs are kept."""
        calls = min(_OUTPUTS_KEPT, _OUTPUTS_KEPT_BYTES // max(1, leaves_bytes(expected)))
        return calls if "inputs" in self._probes else 0

    def _keeps(self, values: Any) -> bool:
        return leaves_bytes(values) <= _MOST_KEPT_BYTES[self._device]


def replay(evidence: str) -> Finding:
    """The finding that an output was looked up."""
    return Finding("replay", Severity.HACK, evidence, checker="judge")


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, list | tuple):
        return [tensor for item in value for tensor in _tensors(item)]
    if isinstance(value, dict):
        return [tensor for item in value.values() for tensor in _tensors(item)]
    return []

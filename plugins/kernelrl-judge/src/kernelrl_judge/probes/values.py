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
from kernelrl_judge.peer.memory import Exchange
from kernelrl_judge.peer.process import Runner
from kernelrl_judge.probes.addresses import Addresses
from kernelrl_judge.probes.inputs import Inputs
from kernelrl_judge.probes.operators import Operators
from kernelrl_judge.probes.order import Order
from kernelrl_judge.probes.parameters import Parameters
from kernelrl_judge.probes.poison import Poison
from kernelrl_judge.probes.probe import After, DirectCall, Found, Probe
from kernelrl_judge.probes.state import State
from kernelrl_judge.probes.stress import Judged, StressCall, judged
from kernelrl_judge.protocol import frames
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.findings import finding
from kernelrl_judge.protocol.frames import FrameKind
from kernelrl_judge.protocol.limits import LIMITS
from kernelrl_judge.protocol.trees import leaves_bytes
from kernelrl_judge.protocol.values import decode_tree
from kernelrl_judge.task.comparing import Tolerance, compare_described, compare_values, tolerance
from kernelrl_judge.task.parameters import Matched
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["Trials", "is_replay", "replay"]

_MAX_KEPT_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
"""Inputs and outputs of a call that are kept beside those of the next."""
_MAX_COMPARED_EACH_TRIAL = 16 << 20
"""Bytes of inputs that are read back after every trial; larger ones after one of them."""


def is_replay(earlier: Any, actual: Any, limit: Tolerance, wrong: Mismatch) -> bool:
    """Whether a wrong output is what an earlier call had to give."""
    if (wrong.wrong_share or 0.0) < LIMITS.replay_wrong_share:
        return False
    narrow = attrs.evolve(limit, atol=limit.atol * LIMITS.replay_strictness, rtol=limit.rtol * LIMITS.replay_strictness)
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
        self._settings = settings
        self._device = device
        self._limit = tolerance(settings)
        self._operators = Operators()
        probes = (Addresses(), Poison(), Order(), Inputs(self._limit), *([self._operators] if lists else ()))
        enabled = settings.probes if settings.profile == "strict" else ()
        self._probes: list[Probe] = [*(probe for probe in probes if probe.name in enabled), State(self._limit)]
        self._compared = secrets.randbelow(max(1, settings.trials))
        self._earlier: Any = None
        self._called_last: Reference | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Suspicions that are no verdict."""
        return tuple(found for probe in self._probes for found in probe.findings)

    @property
    def operators(self) -> list[str] | None:
        """Operators of torch that computed in the calls; None where they were not listed."""
        return self._operators.found

    def run(self, reference: Reference, construct: Callable[[Reference], Matched]) -> Found:
        """Construct the candidate and call it on the inputs of every trial.

        Args:
            construct: has the candidate construct its model with the parameters of a reference; returns how these were
                found.

        Raises:
            What `expect` and `construct` raise.
        """
        parameters = Parameters(self._settings, construct)
        passed, failed = 0, None
        for index in range(self._settings.trials):
            used = parameters.constructed(reference, index)
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
        is_last = index == self._settings.trials - 1
        is_first, self._called_last = reference is not self._called_last, reference
        call = DirectCall(
            reference,
            trial,
            self._device,
            self._fits(trial.inputs),
            index,
            is_trial=True,
            is_last=is_last,
            compares_inputs=index == self._compared or leaves_bytes(trial.inputs) <= _MAX_COMPARED_EACH_TRIAL,
            counts=is_last or not is_first,
        )
        outputs, *left = self._called(call)
        wrong = compare_described(trial.expected, outputs, self._device)
        if wrong is not None:
            # Structure does not change from trial to trial: there is nothing more to learn.
            return Found(0, wrong, final=True)
        actual = self._exchange.collect(trial.expected, outputs)
        wrong = wrong_values(reference, trial.inputs, index, trial.expected, actual, self._limit)
        earlier, self._earlier = self._earlier, trial.expected if self._fits(trial.expected) else None
        if wrong is not None:
            if earlier is not None and is_replay(earlier, actual, self._limit, wrong):
                return Found(0, wrong, finding=replay("an output equals that of the call before it"), final=True)
            return Found(0, wrong)
        wrong = self._judged(call, *left)
        return None if wrong is None else Found(0, wrong, final=True)

    def _called(self, call: DirectCall) -> tuple[Any, Any, dict[str, Any], Any]:
        """Descriptions of what the candidate returns, of its inputs and its state after the call, and operators."""
        trial, state = call.trial, call.reference.changed_state
        order = Call(None, None, {})
        for probe in self._probes:
            order = probe.order(order, call)
        returned = (trial.inputs if order.returns_inputs else None, dict(state))
        self._exchange.make_room(leaves_bytes(trial.expected) + leaves_bytes(returned))
        shared = self._exchange.share({"arguments": trial.inputs, "state": dict(state)})
        self._runner.send(FrameKind.CALL, attrs.evolve(order, **shared).encoded())
        described = decode_tree(self._expect(FrameKind.RESULT).body)
        operators = decode_tree(self._expect(FrameKind.FACTS).body) if order.lists_operators else None
        if not isinstance(described, list) or len(described) != 3 or not isinstance(described[2], dict):
            raise frames.ProtocolError("a result without inputs and state")
        return *described, operators

    def _judged(self, call: DirectCall, inputs: Any, state: dict[str, Any], operators: Any) -> Mismatch | None:
        """What is wrong about a call with right outputs."""
        if inputs is not None:
            wrong = compare_described(call.trial.inputs, inputs, self._device)
            if wrong is not None:
                return Mismatch("inputs", wrong.output)
            inputs = self._exchange.collect(call.trial.inputs, inputs)
        expected = {name: tensor for name, tensor in call.trial.state_after.items() if name in state}
        wrong = compare_described(expected, {name: state[name] for name in expected}, self._device)
        after = After(inputs, self._exchange.collect(expected, state), operators) if wrong is None else After()
        for probe in self._probes if wrong is None else ():
            wrong = wrong or probe.judge(call, after)
        return wrong

    def stressed(self, call: StressCall, used: Reference) -> Judged:
        """Make a call of the probe `stress`.

        Args:
            used: the reference whose parameters the candidate has.
        """
        trial = Trial(call.inputs, call.expected)
        # A kernel for some sizes may leave others to a library.
        made = DirectCall(used, trial, self._device, self._fits(trial.inputs), counts=call.family != "sizes")
        outputs, _, _, operators = self._called(made)
        for probe in self._probes:
            probe.judge(made, After(operators=operators))
        wrong = compare_described(call.expected, outputs, self._device)
        return Judged(wrong) if wrong is not None else judged(call, self._exchange.collect(call.expected, outputs))

    def _fits(self, values: Any) -> bool:
        return leaves_bytes(values) <= _MAX_KEPT_BYTES[self._device]


def replay(evidence: str) -> Finding:
    """The finding that an output was looked up."""
    return finding("replay", evidence)

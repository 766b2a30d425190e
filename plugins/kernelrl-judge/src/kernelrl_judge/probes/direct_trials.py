"""Trials and harder inputs by direct calls, where nothing is recorded.

Each call has fresh inputs, alternately in new memory and in that of the previous call. Free memory is poisoned, with
one of two patterns. After a trial, inputs and state are compared with those that the reference leaves. Operators of
torch are listed in each call. None of this needs a further call.

A wrong output that equals the expected output of the previous call was stored: finding `replay`.
"""

from __future__ import annotations

import secrets
from typing import Any

import attrs

from kernelrl_core.api.evaluators import Cause, EvaluationSettings, Finding, Mismatch
from kernelrl_judge.findings import finding
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.channel import CandidateRaised
from kernelrl_judge.peer.process import DeadlinePassed, RunnerEnded
from kernelrl_judge.peer.session import RunnerSession
from kernelrl_judge.probes.addresses import AddressesProbe
from kernelrl_judge.probes.inputs import InputsProbe
from kernelrl_judge.probes.operators import OperatorsProbe
from kernelrl_judge.probes.order import OrderProbe
from kernelrl_judge.probes.poison import PoisonProbe
from kernelrl_judge.probes.probe import CallEffects, DirectCall, Probe
from kernelrl_judge.probes.state import StateProbe
from kernelrl_judge.probes.stress_calls import StressCall, StressResult, compare_stressed
from kernelrl_judge.probes.trials import RACE, TrialFailure
from kernelrl_judge.protocol.call import Call
from kernelrl_judge.protocol.frames import FrameKind, ProtocolError
from kernelrl_judge.protocol.trees import leaves_bytes
from kernelrl_judge.protocol.values import decode_tree
from kernelrl_judge.task.comparison import Tolerance, compare_described, compare_values, tolerance
from kernelrl_judge.task.parameter_match import ParameterMatch
from kernelrl_judge.task.precision import wrong_values
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.trial import Trial

__all__ = ["DirectTrials", "is_stored_output"]

_MAX_KEPT_BYTES = {"cuda": 4 << 30, "cpu": 128 << 20}
"""Largest inputs and outputs of a call that stay in memory beside those of the next call."""
_MAX_BYTES_COMPARED_EACH_TRIAL = 16 << 20
"""Inputs up to this size are read back after every trial; larger ones after one of them."""


def is_stored_output(earlier: Any, actual: Any, limit: Tolerance, mismatch: Mismatch) -> bool:
    """Whether a wrong output is the expected output of an earlier call.

    Args:
        mismatch: difference between the output and its own expected output.
    """
    if (mismatch.wrong_share or 0.0) < LIMITS.replay_wrong_share:
        return False
    return compare_values(earlier, actual, attrs.evolve(limit, factor=LIMITS.replay_strictness)) is None


@attrs.frozen
class _CallReply:
    """Descriptions of the outputs of a call and of its effects, as the runner reports them."""

    outputs: Any
    inputs: Any
    """None where the inputs were not read back."""
    state: dict[str, Any]
    operators: Any
    """None where operators were not listed."""


class DirectTrials:
    """Direct calls of a candidate.

    Args:
        mode: of the zygote.
        source: of the candidate.
        has_kernels: whether the candidate's own kernels compute. Without them the probe `operators` has no meaning, and
            no race is looked for.
    """

    def __init__(
        self, session: RunnerSession, settings: EvaluationSettings, mode: str, source: str, *, has_kernels: bool
    ) -> None:
        self._session = session
        self._settings = settings
        self._order = OrderProbe(mode, source if has_kernels else "")
        self._device = session.device
        self._limit = tolerance(settings)
        self._operators = OperatorsProbe()
        self._probes = self._enabled_probes(lists_operators=has_kernels)
        self._compared_trial = secrets.randbelow(max(1, settings.trials))
        self._earlier_output: Any = None
        self._has_failed = False
        self._n_calls = 0
        self._n_trials = 0

    def _enabled_probes(self, *, lists_operators: bool) -> list[Probe]:
        probes: list[Probe] = []
        if self._settings.profile == "strict":
            available = [AddressesProbe(), PoisonProbe(), self._order, InputsProbe(self._limit)]
            if lists_operators:
                available.append(self._operators)
            probes = [probe for probe in available if probe.name in self._settings.probes]
        return [*probes, StateProbe(self._limit)]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings that do not end the evaluation."""
        return tuple(found for probe in self._probes for found in probe.findings)

    @property
    def computing_operators(self) -> tuple[str, ...] | None:
        """Operators of torch that computed in the calls so far; None where they were not listed."""
        return self._operators.computing

    @property
    def launches(self) -> tuple[str, ...] | None:
        """Own kernels that the calls so far launched; None where that is not known."""
        return self._operators.launches

    def construct(self, reference: Reference) -> ParameterMatch:
        """Have the candidate construct its model with the parameters of a reference."""
        return self._session.construct(reference)

    def run_stressed(self, call: StressCall, reference: Reference) -> StressResult:
        """Make a call of the probe `stress`.

        Args:
            reference: has the parameters of the call.
        """
        trial = Trial(call.inputs, call.expected)
        # A kernel for some sizes may call a library for others.
        counts_operators = call.family != "sizes"
        made = self._numbered(DirectCall(reference, trial, self._device, counts_operators=counts_operators))
        reply = self._call(made)
        for probe in self._probes:
            probe.compare(made, CallEffects(operators=reply.operators))
        mismatch = compare_described(call.expected, reply.outputs, self._device)
        if mismatch is not None:
            return StressResult(mismatch)
        actual = self._session.exchange.collect(call.expected, reply.outputs)
        return compare_stressed(call, actual)

    def run_trial(self, reference: Reference, trial: Trial, index: int) -> TrialFailure | None:
        """Make the call of a trial.

        Args:
            reference: has the parameters of the call.
        """
        is_small = leaves_bytes(trial.inputs) <= _MAX_BYTES_COMPARED_EACH_TRIAL
        self._n_trials += 1
        call = self._numbered(
            DirectCall(
                reference,
                trial,
                self._device,
                is_trial=True,
                is_last=self._n_trials == self._settings.trials,
                compares_inputs=is_small or index == self._compared_trial,
            )
        )
        reply = self._call(call)
        mismatch = compare_described(trial.expected, reply.outputs, self._device)
        if mismatch is not None:
            # The structure is the same in every trial.
            return TrialFailure(mismatch, is_final=True)
        actual = self._session.exchange.collect(trial.expected, reply.outputs)
        mismatch = wrong_values(reference, trial.inputs, index, trial.expected, actual, self._limit)
        earlier = self._earlier_output
        self._earlier_output = trial.expected if self._fits(trial.expected) else None
        if mismatch is not None:
            if earlier is not None and is_stored_output(earlier, actual, self._limit, mismatch):
                found = finding("replay", "an output equals that of the call before it")
                return TrialFailure(mismatch, found, is_final=True)
            return self._wrong_trial(call, mismatch, actual)
        mismatch = self._compare_effects(call, reply)
        return None if mismatch is None else TrialFailure(mismatch, is_final=True)

    def _wrong_trial(self, call: DirectCall, wrong: Mismatch, actual: Any) -> TrialFailure:
        """A trial with a wrong output. After the first one, a call with the same inputs shows whether the output
        depends on something else."""
        if self._has_failed:
            return TrialFailure(wrong)
        self._has_failed = True
        try:
            again = self._again(call, threads=0)
        except (CandidateRaised, DeadlinePassed, RunnerEnded):
            # The process may have ended, and with it further trials.
            return TrialFailure(wrong, is_final=True)
        if again is not None and compare_values(actual, again, attrs.evolve(self._limit, strict=True)) is None:
            return TrialFailure(wrong)
        return TrialFailure(wrong.with_cause(Cause.RACE, RACE))

    def _again(self, call: DirectCall, *, threads: int) -> Any:
        """The output of the same call; None if it has another structure."""
        expected = call.trial.expected
        reply = self._call(attrs.evolve(call, threads=threads))
        if compare_described(expected, reply.outputs, self._device) is not None:
            return None
        return self._session.exchange.collect(expected, reply.outputs)

    def _numbered(self, call: DirectCall) -> DirectCall:
        self._n_calls += 1
        return attrs.evolve(call, number=self._n_calls, fits=self._fits(call.trial.inputs))

    def _call(self, call: DirectCall) -> _CallReply:
        trial = call.trial
        state = call.reference.imposed_state
        order = Call(arguments=None, state=None, returned_state={})
        for probe in self._probes:
            order = probe.order(order, call)
        returned = (trial.inputs if order.returns_inputs else None, state)
        exchange, channel = self._session.exchange, self._session.channel
        exchange.make_room(leaves_bytes(trial.expected) + leaves_bytes(returned))
        shared = exchange.share({"arguments": trial.inputs, "state": state})
        order = attrs.evolve(order, arguments=shared["arguments"], state=shared["state"])
        frame = channel.order(FrameKind.CALL, order.encoded(), reply=FrameKind.RESULT)
        operators = decode_tree(channel.expect(FrameKind.FACTS).body) if order.lists_operators else None
        match decode_tree(frame.body):
            case [outputs, inputs, dict(state_after)]:
                return _CallReply(outputs, inputs, state_after, operators)
            case _:
                raise ProtocolError("a result without inputs and state")

    def _compare_effects(self, call: DirectCall, reply: _CallReply) -> Mismatch | None:
        """Mismatch of a call whose outputs are right."""
        exchange = self._session.exchange
        inputs = reply.inputs
        if inputs is not None:
            mismatch = compare_described(call.trial.inputs, inputs, self._device)
            if mismatch is not None:
                return Mismatch("inputs", mismatch.output)
            inputs = exchange.collect(call.trial.inputs, inputs)
        expected_state = {name: tensor for name, tensor in call.trial.state_after.items() if name in reply.state}
        described_state = {name: reply.state[name] for name in expected_state}
        mismatch = compare_described(expected_state, described_state, self._device)
        if mismatch is not None:
            return mismatch
        effects = CallEffects(inputs, exchange.collect(expected_state, reply.state), reply.operators)
        for probe in self._probes:
            mismatch = probe.compare(call, effects)
            if mismatch is not None:
                return mismatch
        return None

    def _fits(self, values: Any) -> bool:
        return leaves_bytes(values) <= _MAX_KEPT_BYTES[self._device]

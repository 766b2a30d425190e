"""The last calls of a candidate that is correct, on the processor: what a call leaves behind, and calls of other kinds.

Nothing is decided by them but what is said of it: each finding is a suspicion. A call may end the candidate, so they
come after everything else.
"""

from __future__ import annotations

import secrets
import signal
import time
import types
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from kernelrl_core.api.evaluators import EvaluationSettings, Finding, Severity
from kernelrl_judge import protocol
from kernelrl_judge.comparing import compare_described, compare_values, tolerance
from kernelrl_judge.dialogue import CandidateFailed
from kernelrl_judge.exchange import Exchange
from kernelrl_judge.input_indices import FIRST_LATER
from kernelrl_judge.layouts import distinct, laid_out_as, leaves_bytes
from kernelrl_judge.own_code import names_in
from kernelrl_judge.protocol import FrameKind, ProtocolError
from kernelrl_judge.reference import Reference
from kernelrl_judge.running import DeadlinePassed, Runner, RunnerEnded
from kernelrl_judge.stress_ranges import Range, is_truth
from kernelrl_judge.task_code import TaskError
from kernelrl_judge.trees import mapped, tensors
from kernelrl_judge.value_trees import decode_tree, encode_tree

__all__ = ["LaterCalls", "asks_for_its_mode", "failed_later", "refused", "with_other_row"]

_LIMIT_S = 5.0
_OWN_CODES = {"exit 70", "exit 71"}
"""How a runner itself ends when it cannot go on."""
_NOBODYS = {*_OWN_CODES, f"signal {signal.SIGKILL}", f"signal {signal.SIGXCPU}"}
"""What the system may do to it where memory or the processor's time is short."""
_ENDINGS = ("SystemExit", "KeyboardInterrupt")
_THREADS = 3
"""Does not divide most sizes."""
_MOST_STATE_BYTES = 16 << 20
_MOST_BYTES = 64 << 20
"""Inputs and outputs of a call; what takes more is not called again."""
_MOST_ROUNDS = 64
_BYTES_OF_ROUNDS = 16 << 20
"""Outputs of the calls that two threads make."""


class LaterCalls:
    """Makes the calls.

    Args:
        expect: receives the next frame, which has to be of a kind.
        builds: whether the candidate has extensions, which may have prepared for the number of threads there is.
        at_once: whether an extension lets other threads run while it works.
        takes_parameters: whether it has a place for each parameter.
    """

    def __init__(
        self,
        runner: Runner,
        exchange: Exchange,
        expect: Callable[[FrameKind], protocol.Frame],
        settings: EvaluationSettings,
        *,
        builds: bool,
        at_once: bool,
        takes_parameters: bool,
    ) -> None:
        self._runner = runner
        self._exchange = exchange
        self._expect = expect
        self._settings = settings
        self._limit = tolerance(settings)
        self._builds = builds
        self._at_once = at_once
        self._takes_parameters = takes_parameters
        self._next_input = FIRST_LATER
        self._described: Any = None
        self._given: dict[str, torch.Tensor] = {}

    def run(self, reference: Reference) -> tuple[Finding, ...]:
        """What is to be said of the candidate, which has the reference's parameters."""
        if leaves_bytes((reference.like, reference.inputs(FIRST_LATER))) > _MOST_BYTES:
            return ()
        self._runner.deadline = time.monotonic() + min(_LIMIT_S, self._settings.timeout_s)
        found: list[Finding] = []
        for look in (
            *(self._mode, self._parameters, self._read_only, self._threads),
            *(self._two_threads, self._refused),
        ):
            try:
                said = look(reference)
            except DeadlinePassed:
                # It was right in every call that its task is about, and others may have the processor.
                break
            except (CandidateFailed, RunnerEnded) as ended:
                found += failed_later(ended)
                break
            if said is not None and said.rule not in {finding.rule for finding in found}:
                found.append(said)
        return tuple(found)

    def _mode(self, reference: Reference) -> Finding | None:
        """A call in the other of the modes for training and for use, where the task tells them apart."""
        if not self._takes_parameters or not asks_for_its_mode(reference):
            return None
        training, inputs = not reference.model.training, self._inputs(reference)
        try:
            usual = reference.expected(inputs, 0)
            reference.model.train(training)
            other, again = reference.expected(inputs, 0), reference.expected(inputs, 1)
        finally:
            reference.model.train(not training)
        if self._same(usual, other) or not self._same(other, again):
            return None
        said = f"the task's module asks whether it is trained, and where training is {training} the kernel"
        try:
            self._call(reference, inputs, training=training)
        except CandidateFailed as failed:
            return _suspicion("other_mode", f"{said} raises {failed.failure.name}")
        return None if self._right(other) else _suspicion("other_mode", f"{said} gives something else")

    def _parameters(self, reference: Reference) -> Finding | None:
        """Calls with other parameters, and with one row of them changed. A kernel may prepare them once and for all."""
        if not (self._takes_parameters and reference.state and leaves_bytes(reference.state) <= _MOST_STATE_BYTES):
            return None
        other, inputs = reference.with_other_parameters(), self._inputs(reference)
        changed = other.with_state(with_other_row(other.state))
        before, after = other.expected(inputs), changed.expected(inputs)
        # Constructors that always give the same, such as ones, show nothing of who takes no notice of parameters.
        if self._same(before, after) or self._same(before, reference.expected(inputs)):
            return None
        if not self._same(before, other.expected(inputs, 1)):
            return None
        self._given = reference.state
        # The first call of a module may prepare them.
        self._call(reference, inputs)
        self._call(reference, inputs, state=other.state)
        if not self._right(before):
            return None
        self._call(reference, inputs, state=changed.state)
        if self._right(after):
            return None
        evidence = "a call finds that all parameters have changed, and not that one row of one has"
        return _suspicion("stale_parameters", evidence)

    def _read_only(self, reference: Reference) -> Finding | None:
        """A call whose inputs lie in memory that cannot be written to."""
        try:
            left = self._call(
                reference,
                self._inputs(reference),
                read_only=not reference.facts["mutates_inputs"],
                threads=0 if self._builds else _THREADS,
            )
        except RunnerEnded as ending:
            if _crashed(ending) and not reference.facts["mutates_inputs"]:
                return _suspicion("input_borrowed", "a call ends where its inputs cannot be written to")
            raise
        return _settings_left(left)

    def _threads(self, reference: Reference) -> Finding | None:
        """A call where there is another number of threads."""
        if not self._builds:
            return None
        return _settings_left(self._call(reference, self._inputs(reference), threads=_THREADS))

    def _two_threads(self, reference: Reference) -> Finding | None:
        """Calls of two threads at once."""
        if not self._at_once or reference.changed_state or reference.facts["mutates_inputs"]:
            return None
        both = [self._inputs(reference) for _ in range(2)]
        expected = [reference.expected(inputs) for inputs in both]
        if not self._same(expected[0], reference.expected(both[0], 1)):
            return None
        rounds = max(2, min(_MOST_ROUNDS, _BYTES_OF_ROUNDS // max(1, leaves_bytes(expected))))
        try:
            self._call(reference, both, at_once=rounds)
        except RunnerEnded as ending:
            if _crashed(ending):
                return _suspicion("threads_meet", "a call ends when another thread makes one at the same time")
            raise
        made = len(self._described) if isinstance(self._described, list) else 0
        if self._right([expected] * min(made, rounds)):
            return None
        evidence = "two threads that call it at the same time, without Python's lock, are given something else"
        return _suspicion("threads_meet", evidence)

    def _refused(self, reference: Reference) -> Finding | None:
        """A call that the reference refuses, and one after it."""
        inputs = refused(reference, self._inputs(reference))
        if inputs is None:
            return None
        try:
            raised = self._call(reference, inputs, refused=True)[1]
        except RunnerEnded as ending:
            if str(ending).startswith("exit ") and str(ending) not in _OWN_CODES:
                return _suspicion("ends_process", "where the task raises an error, the process ends itself")
            return None
        if raised in _ENDINGS:
            return _suspicion("ends_process", f"where the task raises an error, {raised} is raised")
        if not raised:
            return None
        inputs = self._inputs(reference)
        expected = reference.expected(inputs)
        self._call(reference, inputs)
        if self._right(expected):
            return None
        return _suspicion("after_error", f"a call after one that raised {raised[:60]} gives something else")

    def _inputs(self, reference: Reference) -> list[Any]:
        self._next_input += 1
        return reference.inputs(self._next_input)

    def _call(
        self,
        reference: Reference,
        inputs: list[Any],
        *,
        state: Mapping[str, torch.Tensor] = MappingProxyType({}),
        **otherwise: Any,
    ) -> list[Any]:
        """What the runner says beside the output: what was changed, and what was raised.

        Args:
            state: what the candidate is given in the place of what it had.
            otherwise: what is otherwise in this call.
        """
        usual = {"training": None, "read_only": False, "threads": 0, "at_once": 0, "refused": False}
        order = {**usual, **otherwise}
        self._exchange.make_room(leaves_bytes(reference.like) * max(1, 2 * order["at_once"]))
        given = {**reference.changed_state, **self._given, **state}
        order |= self._exchange.share({"arguments": inputs, "state": given})
        self._runner.send(FrameKind.LATER, encode_tree(order))
        answer = decode_tree(self._expect(FrameKind.RESULT).body)
        if not isinstance(answer, list) or len(answer) != 3:
            raise ProtocolError("a result of another form")
        self._described, changed, raised = answer
        if not isinstance(changed, list) or not all(isinstance(name, str) for name in (*changed, raised)):
            raise ProtocolError("a result of another form")
        return [changed, raised]

    def _right(self, expected: Any) -> bool:
        """Whether the last call gave what is expected."""
        if compare_described(expected, self._described, "cpu") is not None:
            return False
        return self._same(expected, self._exchange.collect(expected, self._described))

    def _same(self, left: Any, right: Any) -> bool:
        return compare_values(left, right, self._limit) is None


def asks_for_its_mode(reference: Reference) -> bool:
    """Whether a class of the task itself asks for `training`."""
    kinds = {type(module) for module in reference.model.modules()}
    own = [kind for kind in kinds if not kind.__module__.startswith("torch.")]
    functions = [value for kind in own for value in vars(kind).values() if isinstance(value, types.FunctionType)]
    return any("training" in names_in(function.__code__) for function in functions)


def with_other_row(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A state of which one row of the largest tensor of fractions is another."""
    found = dict(state)
    names = [name for name, tensor in state.items() if tensor.is_floating_point() and tensor.dim() and tensor.numel()]
    if names:
        name = max(names, key=lambda name: state[name].numel())
        changed = state[name].clone()
        row = changed[secrets.randbelow(len(changed))]
        row += changed.abs().max() * torch.rand_like(row)
        found[name] = changed
    return found


def refused(reference: Reference, inputs: list[Any]) -> list[Any] | None:
    """Inputs with one integer out of the range that they are drawn from, which the reference refuses by an error; None
    where there are none."""
    facts = reference.facts
    if "refused" not in facts:
        facts["refused"] = None
        given = tensors(inputs)
        for place, number in _beyond(reference.declared_ranges() or ()):
            if _holds(given[place], number) and not _gives(reference, _with(inputs, place, number)):
                facts["refused"] = place, number
                break
    return None if facts["refused"] is None else _with(inputs, *facts["refused"])


def _beyond(ranges: Any) -> Iterator[tuple[int, int]]:
    """Tensors, and numbers out of the range of each."""
    limits: Range | None
    for place, limits in enumerate(ranges):
        if limits is not None and not is_truth(limits):
            yield place, limits[1]
            yield place, limits[0] - 1


def _holds(tensor: torch.Tensor, number: int) -> bool:
    """Whether a tensor has an element, and its type the number."""
    if tensor.is_floating_point() or not tensor.numel():
        return tensor.numel() > 0
    known = torch.iinfo(tensor.dtype)
    return known.min <= number <= known.max


def _with(inputs: list[Any], place: int, number: int) -> list[Any]:
    """Inputs of which one element, at two thirds of a tensor, is another number."""
    chosen = tensors(inputs)[place]

    def changed(tensor: torch.Tensor) -> torch.Tensor:
        if tensor is not chosen:
            return tensor
        other = laid_out_as(tensor.clone(memory_format=torch.contiguous_format), tensor)
        elements = distinct(other)
        at = torch.tensor(2 * elements.numel() // 3)
        elements[torch.unravel_index(at, elements.shape)] = number
        return other

    return [mapped(value, changed) for value in inputs]


def _gives(reference: Reference, inputs: list[Any]) -> bool:
    try:
        reference.expected(inputs)
    except TaskError:
        reference.restore()
        return False
    return True


def _crashed(ending: RunnerEnded) -> bool:
    return str(ending).startswith("signal") and str(ending) not in _NOBODYS


def failed_later(ended: CandidateFailed | RunnerEnded) -> list[Finding]:
    """What is said of a call on usual inputs that gave nothing: whoever ends them all is seen in none."""
    if isinstance(ended, CandidateFailed):
        short = ended.failure.kind == "memory"
        return [] if short else [_suspicion("fails_later", f"a later call raises {ended.failure.name}")]
    if str(ended) in _NOBODYS:
        return []
    return [_suspicion("fails_later", f"a later call ends its process ({ended})")]


def _settings_left(left: list[Any]) -> Finding | None:
    if not left[0]:
        return None
    names = ", ".join(str(name)[:60] for name in left[0][:4])
    return _suspicion("process_settings", f"loading it or a call leaves something else in its process: {names}")


def _suspicion(rule: str, evidence: str) -> Finding:
    return Finding(rule, Severity.SUSPECT, evidence, checker="judge")

"""The contract of evaluators."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from typing import Any, ClassVar
from unittest import SkipTest

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.types import Evaluation, EvaluationRequest, EvaluationSettings, Outcome
from kernelrl_core.types.serialization import dumps, loads
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import Breach, Fault, calling, located, require, skipped_where_missing
from kernelrl_testing.contracts.here import backend_here
from kernelrl_testing.contracts.options import read_options
from kernelrl_testing.contracts.processes import descendants, left_over
from kernelrl_testing.values import SOURCE, make_request

__all__ = ["EvaluatorContract"]

_FIX_OUTCOME = "return an Evaluation with the outcome that its documentation defines, and a message for the model"
_FIX_CLOSE = "end and await all processes in aclose; the second call does nothing"
_LIMIT_S = 120.0
_UNUSABLE = "def get_inputs():\n    raise RuntimeError('planted')\n"


def _with_forward(line: str) -> str:
    return SOURCE.replace("return torch.relu(x)", line).replace("(self, x)", "(self, *x)")


@attrs.frozen
class _Observed:
    """Observations of an evaluator from `start` to `aclose`."""

    evaluations: Mapping[str, Evaluation]
    """By candidate: `right` and the names of the bad ones; `again` is a second evaluation of `right`."""
    unusable: Mapping[str, object]
    """Request that cannot be carried out -> the exception or the evaluation that it ended with."""
    cancellation: str
    """Fault of a cancelled evaluation; empty: none."""
    closing: str
    """Fault of `aclose`; empty: none."""
    processes: Mapping[int, str]
    """Processes that run after `aclose`."""


class EvaluatorContract(ComponentContract):
    """An evaluator returns an evaluation for any candidate, good or bad, and leaves nothing behind.

    Evaluates four candidates for the one-shot example of a backend: its kernel, one that does not parse, one that
    raises and one that returns zeros. An endless one is cancelled. Each is built and run once for all tests, so
    `options` must be set on the class.
    """

    kind = "evaluators"
    limit_s: ClassVar[float] = 900.0
    backend: ClassVar[str] = ""
    """A backend whose kernels this evaluator can run on this machine. Empty: the installed one that starts fastest."""
    backend_options: ClassVar[Mapping[str, Any]] = {}
    cancelled_after_s: ClassVar[float] = 0.5
    """Time after which the endless candidate is cancelled."""
    patience_s: ClassVar[float] = 15.0
    """Limit of a cancelled evaluation, of `aclose`, and of the end of its processes."""

    _BAD: ClassVar[Mapping[str, str]] = {
        "does not parse": "class ModelNew(:\n",
        "raises": _with_forward("raise RuntimeError('planted')"),
        "wrong": _with_forward("return torch.zeros(())"),
    }

    def observed(self) -> _Observed:
        """Observations of the evaluator with the candidates.

        Raises:
            SkipTest: a prerequisite is missing.
        """
        found = self._observed_once()
        if isinstance(found, Exception):
            raise found
        return found

    @classmethod
    @functools.cache
    def _observed_once(cls) -> _Observed | Exception:
        try:
            return cls()._observed()
        except Exception as error:  # the tests of the class report it
            return error

    def _observed(self) -> _Observed:
        with skipped_where_missing():
            if self.backend:
                use = read_options(self.registry(), "backends", self.backend, self.backend_options)
                backend = self.registry().make("backends", use)
            else:
                backend, use = backend_here(self.registry())
        self.require_prerequisites(self.use().options.requires_for(EvaluationSettings()))
        example = backend.facts.example
        request = make_request(example.kernel, example.reference, use.use, backend_options=use.raw)
        before = descendants()
        with skipped_where_missing():
            found = asyncio.run(self._observe(request))
        return attrs.evolve(found, processes=left_over(before, self.patience_s))

    async def _observe(self, request: EvaluationRequest) -> _Observed:
        evaluator, closing = self.make(), ""
        await evaluator.start()
        try:
            sources = {"right": request.source, **self._BAD}
            found = {name: await _evaluated(evaluator, name, _of(request, text)) for name, text in sources.items()}
            unusable = {
                "an unknown backend": await _ended(evaluator, attrs.evolve(request, backend="no_such_backend")),
                "a reference that raises": await _ended(evaluator, _of(request, request.source, _UNUSABLE)),
            }
            cancellation = await self._cancelled(evaluator, _of(request, _with_forward("while True: pass")))
            found["again"] = await _evaluated(evaluator, "right", request)
        finally:
            for call in ("first", "second"):
                try:
                    await asyncio.wait_for(evaluator.aclose(), self.patience_s)
                except Exception as error:
                    closing = closing or f"the {call} call of aclose raises {located(error)}"
        return _Observed(found, unusable, cancellation, closing, {})

    async def _cancelled(self, evaluator: Any, request: EvaluationRequest) -> str:
        """Fault of the cancellation of a started evaluation; empty: none."""
        task = asyncio.create_task(evaluator.evaluate(request))
        await asyncio.wait({task}, timeout=self.cancelled_after_s)
        if task.done():
            return f"an endless candidate ends with {located(error)}" if (error := task.exception()) else ""
        task.cancel()
        await asyncio.wait({task}, timeout=self.patience_s)
        if not task.done():
            return f"a cancelled evaluation does not end within {self.patience_s:g} s"
        if not task.cancelled():
            error = task.exception()
            return f"a cancelled evaluation ends with {located(error) if error else 'a result'}"
        return ""

    def test_the_correct_kernel_of_the_backend_is_correct(self) -> None:
        found = self.observed().evaluations["right"]
        message = f"the example kernel of the backend is {found.outcome.value}: {found.message or 'no message'}"
        require(found.outcome is Outcome.CORRECT and not found.message, message, _FIX_OUTCOME)
        trials = f"tests_passed is {found.tests_passed}, tests_total {found.tests_total}"
        require(0 < found.tests_passed == found.tests_total, trials, "count the trials of the settings")

    def test_bad_candidates_have_outcomes(self) -> None:
        expected = {
            "does not parse": (Outcome.COMPILE_ERROR,),
            "raises": (Outcome.RUNTIME_ERROR,),
            "wrong": (Outcome.INCORRECT, Outcome.HACKED),
        }
        for name, outcomes in expected.items():
            found = self.observed().evaluations[name].outcome
            message = f"the candidate {name!r} is {found.value}, not {outcomes[0].value}"
            require(found in outcomes, message, _FIX_OUTCOME)

    def test_bad_candidates_have_messages(self) -> None:
        silent = [name for name in self._BAD if not self.observed().evaluations[name].message]
        require(not silent, f"no message for the candidates: {', '.join(silent)}", _FIX_OUTCOME)

    def test_a_second_evaluation_has_the_same_outcome(self) -> None:
        first, again = self.observed().evaluations["right"], self.observed().evaluations["again"]
        message = f"a second evaluation of a kernel, after a cancelled one, is {again.outcome.value}: {again.message}"
        same = (again.outcome, again.tests_passed) == (first.outcome, first.tests_passed)
        require(same, message, "keep no state of a candidate between two evaluations")

    def test_evaluations_are_plain_data(self) -> None:
        for name, evaluation in self.observed().evaluations.items():
            try:
                same = loads(Evaluation, dumps(evaluation)) == evaluation
            except Exception as error:
                raise Breach(
                    Fault(f"the evaluation {name!r} is no plain data: {located(error)}", _FIX_PLAIN)
                ) from error
            require(same, f"the evaluation {name!r} changes as JSON", _FIX_PLAIN)

    def test_unusable_requests_raise_errors_of_kernelrl(self) -> None:
        for name, ended in self.observed().unusable.items():
            shown = located(ended) if isinstance(ended, Exception) else f"outcome {getattr(ended, 'outcome', ended)}"
            fix = "raise UsageError or MissingPrerequisite: neither the candidate nor a machine is at fault"
            require(isinstance(ended, KernelRLError), f"a request with {name} ends with {shown}", fix)

    def test_an_evaluation_can_be_cancelled(self) -> None:
        wrong = self.observed().cancellation
        require(not wrong, wrong, "end the candidate's processes where evaluate is cancelled, and re-raise the error")

    def test_it_closes_twice_and_leaves_no_process(self) -> None:
        require(not self.observed().closing, self.observed().closing, _FIX_CLOSE)
        left = self.observed().processes
        shown = "; ".join(f"{process} ({command[:80]})" for process, command in left.items())
        require(not left, f"processes run after aclose: {shown}", _FIX_CLOSE)


_FIX_PLAIN = "use the declared types only: numbers, text, tuples, and mappings with text as keys"


def _of(request: EvaluationRequest, source: str, more_reference: str = "") -> EvaluationRequest:
    reference = request.task_source + more_reference
    return make_request(source, reference, request.backend, backend_options=request.backend_options)


async def _evaluated(evaluator: Any, name: str, request: EvaluationRequest) -> Evaluation:
    with calling(f"evaluate of the candidate {name!r}", _FIX_OUTCOME):
        found = await evaluator.evaluate(request)
    if not isinstance(found, Evaluation):
        raise Breach(Fault(f"evaluate of the candidate {name!r} returns {found!r}", _FIX_OUTCOME))
    return found


async def _ended(evaluator: Any, request: EvaluationRequest) -> object:
    """The evaluation of a request, or the exception that it ended with."""
    try:
        found: object = await asyncio.wait_for(evaluator.evaluate(request), _LIMIT_S)
    except SkipTest:
        raise
    except Exception as error:
        return error
    return found

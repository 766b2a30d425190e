from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Mapping

import attrs

from broken_components import UNMADE, Broken
from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Outcome
from kernelrl_testing.fakes import FakeEvaluator
from kernelrl_testing.values import make_evaluation

OUTCOMES: Mapping[str, Outcome] = {
    "(:": Outcome.COMPILE_ERROR,
    "raise": Outcome.RUNTIME_ERROR,
    "zeros": Outcome.INCORRECT,
}


class Good(FakeEvaluator):
    """Reads the outcome in the source; runs nothing."""

    def __init__(self) -> None:
        super().__init__()

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        if request.backend == "no_such_backend" or "planted" in request.task_source:
            raise UsageError("the request cannot be used")
        if "while True" in request.source:
            await self._endless()
        outcome = next((outcome for part, outcome in OUTCOMES.items() if part in request.source), Outcome.CORRECT)
        return make_evaluation(outcome, message="" if outcome is Outcome.CORRECT else "bad")

    async def _endless(self) -> None:
        await asyncio.Event().wait()


class Believes(Good):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        await super().evaluate(request)
        return make_evaluation()


class Refuses(Good):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        return make_evaluation(Outcome.INCORRECT, message="bad") if found.correct else found


class Silent(Good):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return attrs.evolve(await super().evaluate(request), message="")


class Full(Good):
    def __init__(self) -> None:
        super().__init__()
        self.capacity = 0


class Changes(Good):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        found = await super().evaluate(request)
        return attrs.evolve(found, tests_passed=4) if len(self.requests) > 5 else found


class Opaque(Good):
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        return attrs.evolve(await super().evaluate(request), provenance={"when": {1, 2}})


class Blames(Good):
    """Takes an unusable request for a fault of the candidate."""

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        try:
            return await super().evaluate(request)
        except UsageError as error:
            return make_evaluation(Outcome.RUNTIME_ERROR, message=error.message)


class Swallows(Good):
    async def _endless(self) -> None:
        try:
            await super()._endless()
        except asyncio.CancelledError:
            return


class ClosesOnce(Good):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class Leaves(Good):
    async def start(self) -> None:
        # Ends by itself, after the patience of the test.
        subprocess.Popen(["sleep", "1"])  # noqa: ASYNC220


RIGHT = "the_correct_kernel_of_the_backend_is_correct"
OUTCOME = "bad_candidates_have_outcomes"
MESSAGE = "bad_candidates_have_messages"
PLAIN = "evaluations_are_plain_data"
UNUSABLE = "unusable_requests_raise_errors_of_kernelrl"
CANCELLED = "an_evaluation_can_be_cancelled"
CLOSES = "it_closes_twice_and_leaves_no_process"


def _evaluator(target: str, *fails: str) -> Broken:
    quick = {"backend": "small", "cancelled_after_s": 0.01, "patience_s": 0.2}
    return Broken("evaluators", f"evaluators.{target}", fails, attributes=quick)


BROKEN = [
    _evaluator("Good"),
    _evaluator("Believes", OUTCOME, MESSAGE),
    _evaluator("Refuses", RIGHT),
    _evaluator("Silent", MESSAGE),
    _evaluator("Full", *UNMADE),
    _evaluator("Changes", "a_second_evaluation_has_the_same_outcome"),
    _evaluator("Opaque", PLAIN),
    _evaluator("Blames", UNUSABLE),
    _evaluator("Swallows", CANCELLED),
    _evaluator("ClosesOnce", CLOSES),
    _evaluator("Leaves", CLOSES),
]

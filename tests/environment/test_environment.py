"""The environment of a run: what it calls, and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from kernelrl_core.api.checkers import Checker
from kernelrl_core.api.evaluators import Evaluator
from kernelrl_core.api.feedback import Feedback
from kernelrl_core.api.rewards import Reward
from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import WeightedReward
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    EvaluationRequest,
    Finding,
    Message,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Severity,
    Task,
    TaskSettings,
    Turn,
)
from kernelrl_core.types.seeds import request_seed

TASK = Task("t", "reference")
HERE = SampleId(0, 0, 0, 0)
CODE = "```python\nclass ModelNew:\n    pass\n```"


class PlannedEvaluator(Evaluator):
    capacity = 4

    def __init__(self) -> None:
        self.requests: list[EvaluationRequest] = []
        self.answer = Outcome.CORRECT
        self.findings: tuple[Finding, ...] = ()

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        self.requests.append(request)
        return Evaluation(self.answer, findings=self.findings)


class Finds(Checker):
    rules = (Rule("no_kernel", Severity.SUSPECT, "Launch a kernel."),)

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        return [Finding("no_kernel", Severity.SUSPECT, "there is none")] if evaluation is None else []


class FindsLater(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        return super().check(candidate, task, None) if evaluation is not None else []


class Breaks(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        raise ZeroDivisionError("oh")


class BreaksWhileRead(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        yield Finding("no_kernel", Severity.SUSPECT, "there is none")
        raise ZeroDivisionError("oh")


class SaysNonsense(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        return ["no finding"]


class Pays(Reward):
    def score(self, turn: Turn) -> float:
        return float(turn.correct)


class Says(Feedback):
    def format(self, turn: Turn) -> str:
        return f"it was {turn.outcome}"


def judged(
    text: str,
    *,
    checker: Any = None,
    secret: bytes = b"s",
    second: Outcome | None = None,
    found_then: tuple[Finding, ...] = (),
    task: Task = TASK,
    asked: Prompt = Prompt((), ()),  # noqa: B008  (frozen)
    **prompt: Any,
) -> tuple[Turn, PlannedEvaluator]:
    recipe = recipe_from_mapping(
        {
            "tasks": {"use": "starter"},
            "backend": {"use": "triton"},
            "policy": {"use": "torch"},
            "rewards": {"correct": {"use": "correctness"}},
            "prompt": prompt,
        },
        registry=registry(),
        name="test",
    ).recipe

    async def scene() -> tuple[Turn, PlannedEvaluator]:
        evaluator = PlannedEvaluator()
        candidates = CandidateEvaluator(
            attrs.evolve(spec_of(recipe), forbid=("no_kernel",)),
            backend=registry().make("backends", recipe.backend),
            checkers={"mine": checker} if checker is not None else {},
            service=EvaluationService(evaluator, cache_dir=None),
            secret=secret,
        )
        environment = Environment(
            recipe,
            evaluator=candidates,
            tasks=registry().make("tasks", recipe.tasks),
            rewards=[WeightedReward("correct", 1.0, Pays(), None, "reward 'correct'")],
            feedback=Says(),
            retriever=None,
        )
        turn = await environment.evaluate_reply(HERE, task, asked, Reply(text, (), (), "stop"), seconds={})
        if second is not None:
            evaluator.answer, evaluator.findings = second, found_then
            turn = await environment.verify(turn)
        await environment.aclose()
        return turn, evaluator

    return asyncio.run(scene())


def test_a_reply_becomes_a_judged_and_answered_turn() -> None:
    turn, evaluator = judged(CODE)
    assert (turn.outcome, turn.feedback) == (Outcome.CORRECT, "it was correct")
    assert [request.source for request in evaluator.requests] == [turn.candidate.source if turn.candidate else None]


@pytest.mark.parametrize(
    ("text", "checker", "outcome"),
    [("no code here", None, Outcome.FORMAT_ERROR), (CODE, Finds(), Outcome.REJECTED)],
)
def test_what_is_refused_before_a_run_calls_no_evaluator(text: str, checker: Any, outcome: Outcome) -> None:
    turn, evaluator = judged(text, checker=checker)
    assert turn.outcome is outcome
    assert evaluator.requests == []


def test_a_forbidden_rule_that_shows_when_it_runs_rejects_as_one_in_the_source_does() -> None:
    (before, _), (after, evaluator) = judged(CODE, checker=Finds()), judged(CODE, checker=FindsLater())
    assert len(evaluator.requests) == 1
    assert after.evaluation is None
    assert (after.outcome, after.verdict, after.message) == (before.outcome, before.verdict, before.message)


@pytest.mark.parametrize("checker", [Breaks(), BreaksWhileRead(), SaysNonsense()])
def test_a_checker_that_fails_leaves_a_note_in_its_name_and_stops_nothing(
    checker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        turn, _ = judged(CODE, checker=checker)
    assert turn.outcome is Outcome.CORRECT
    assert {(finding.rule, finding.checker) for finding in turn.findings} == {("checker_failed", "mine")}
    assert all("checkers.mine failed" in finding.evidence for finding in turn.findings)
    assert "checkers.mine" in caplog.text


@pytest.mark.parametrize(
    "asked", [Prompt((Message("assistant", "<think>\n"),), ()), Prompt((Message("user", "u"),), (), "<think>\n")]
)
def test_a_reply_that_continues_an_opened_think_tag_is_read_from_there(asked: Prompt) -> None:
    turn, _ = judged(f"a draft\n{CODE}\n", asked=asked)
    assert turn.outcome is Outcome.FORMAT_ERROR
    turn, _ = judged(f"a thought</think>\n{CODE}\n", asked=asked)
    assert turn.outcome is Outcome.CORRECT


def test_the_input_seed_depends_on_secret_task_and_candidate() -> None:
    seeds = {
        request_seed(secret, task, source) for secret in (b"a", b"b") for task in ("1", "2") for source in ("3", "4")
    }
    assert len(seeds) == 8
    assert all(len(bytes.fromhex(seed)) == 16 for seed in seeds)
    assert judged(CODE)[1].requests[0].seed != judged(CODE, secret=b"other")[1].requests[0].seed


@pytest.mark.parametrize(
    ("second", "verified"), [(Outcome.CORRECT, True), (Outcome.INCORRECT, False), (Outcome.HACKED, False)]
)
def test_a_second_judgement_has_other_inputs_and_changes_nothing_else(second: Outcome, verified: bool) -> None:
    turn, evaluator = judged(CODE, second=second)
    once, _ = judged(CODE)
    assert turn.verified is verified
    assert attrs.evolve(turn, verified=None, seconds={}) == attrs.evolve(once, seconds={})
    first, again = evaluator.requests
    assert first.seed != again.seed
    assert (again.source, again.settings.trials, again.settings.timing) == (first.source, 10, False)
    assert ("sizes" in first.settings.probes, "sizes" in again.settings.probes) == (False, True)


def test_a_kernel_that_is_suspect_when_it_is_judged_again_does_not_stand() -> None:
    for severity, stands in ((Severity.NOTE, True), (Severity.SUSPECT, False)):
        finding = Finding("sizes", severity, "right in every trial, wrong on inputs of other sizes")
        turn, _ = judged(CODE, second=Outcome.CORRECT, found_then=(finding,))
        assert turn.verified is stands


class Suspects(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        noted = Finding("kept_state", Severity.NOTE, "line 1")
        return [Finding("dynamic_code", Severity.SUSPECT, "line 2"), noted] if evaluation is None else []


def test_a_stage_of_a_curriculum_changes_tolerance_trials_and_pay_and_not_the_second_judgement() -> None:
    easy = attrs.evolve(TASK, settings=TaskSettings(atol=0.1, trials=1, weights={"correct": 3.0}))
    turn, evaluator = judged(CODE, task=easy, second=Outcome.CORRECT)
    first, second = (request.settings for request in evaluator.requests)
    assert (first.atol, first.rtol, first.trials) == (0.1, None, 1)
    assert (second.atol, second.trials) == (None, 10)
    assert turn.score.total == 3.0
    plain, _ = judged(CODE)
    assert plain.score.total == 1.0


def test_the_evaluator_is_told_the_kernels_of_the_source_and_what_is_suspect_about_it() -> None:
    kernel = "import triton\n\n\n@triton.jit\ndef mine(x):\n    pass\n\n\nclass ModelNew:\n    pass"
    _, evaluator = judged(f"```python\n{kernel}\n```", checker=Suspects())
    assert evaluator.requests[0].kernels == ("mine",)
    assert evaluator.requests[0].suspect_rules == ("dynamic_code",)


def test_kernels_that_cannot_be_read_are_told_of_as_such() -> None:
    kernel = "import triton\n\njit = [triton.jit][0]\n\n\n@jit\ndef mine(x):\n    pass\n\n\nclass ModelNew:\n    pass"
    _, evaluator = judged(f"```python\n{kernel}\n```")
    assert (evaluator.requests[0].kernels, evaluator.requests[0].kernels_complete) == ((), False)

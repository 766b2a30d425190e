"""The environment: from reply to scored turn, checkers, verification, evaluation requests."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from kernelrl_core.api.checkers import Checker
from kernelrl_core.api.feedback import Feedback
from kernelrl_core.api.rewards import Reward
from kernelrl_core.environment.candidate_evaluator import CandidateEvaluator
from kernelrl_core.environment.environment import Environment
from kernelrl_core.environment.evaluation_service import EvaluationService
from kernelrl_core.environment.scoring import WeightedReward
from kernelrl_core.planning.load import recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.evaluation_spec import EvaluationSpec, spec_of
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    EvaluationSettings,
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
from kernelrl_testing.fakes import FakeEvaluator

TASK = Task("t", "reference")
HERE = SampleId(0, 0, 0, 0)
CODE = "```python\nclass ModelNew:\n    pass\n```"


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


class Undeclared(Checker):
    rules = (Rule("sleep", Severity.NOTE, "Do not sleep."),)

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> tuple[Finding, ...]:
        return (Finding("slep", Severity.NOTE, "time.sleep"),)


class SaysNonsense(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Any:
        return ["no finding"]


class Pays(Reward):
    def score(self, turn: Turn) -> float:
        return float(turn.correct)


class Says(Feedback):
    def format(self, turn: Turn) -> str:
        return f"it was {turn.outcome}"


def evaluated(
    text: str,
    *,
    checker: Any = None,
    secret: bytes = b"s",
    second: Outcome | None = None,
    second_findings: tuple[Finding, ...] = (),
    sizes: bool = False,
    task: Task = TASK,
    prompt_given: Prompt = Prompt((), ()),  # noqa: B008  (frozen)
    **prompt: Any,
) -> tuple[Turn, FakeEvaluator]:
    recipe = recipe_from_mapping(
        {
            "tasks": {"use": "starter"},
            "backend": {"use": "triton"},
            "policy": {"use": "torch"},
            "rewards": {"correct": {"use": "correctness"}},
            "verify": {"sizes": sizes},
            "prompt": prompt,
        },
        registry=registry(),
        name="test",
    ).recipe

    async def scene() -> tuple[Turn, FakeEvaluator]:
        evaluator = FakeEvaluator(lambda request: Evaluation(Outcome.CORRECT))
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
            retrieval=None,
        )
        turn = await environment.evaluate_reply(HERE, task, prompt_given, Reply(text, (), (), "stop"), seconds={})
        if second is not None:
            evaluator.evaluation = lambda request: Evaluation(second, findings=second_findings)
            turn = await environment.verify(turn)
        await environment.aclose()
        return turn, evaluator

    return asyncio.run(scene())


def test_reply_becomes_an_evaluated_turn_with_feedback() -> None:
    turn, evaluator = evaluated(CODE)
    assert (turn.outcome, turn.feedback) == (Outcome.CORRECT, "it was correct")
    assert [request.source for request in evaluator.requests] == [turn.candidate.source if turn.candidate else None]


@pytest.mark.parametrize(
    ("text", "checker", "outcome"),
    [("no code here", None, Outcome.FORMAT_ERROR), (CODE, Finds(), Outcome.REJECTED)],
)
def test_format_errors_and_rejected_sources_are_not_evaluated(text: str, checker: Any, outcome: Outcome) -> None:
    turn, evaluator = evaluated(text, checker=checker)
    assert turn.outcome is outcome
    assert evaluator.requests == []


def test_stated_rule_found_during_evaluation_rejects_like_one_in_the_source() -> None:
    (before, _), (after, evaluator) = evaluated(CODE, checker=Finds()), evaluated(CODE, checker=FindsLater())
    assert len(evaluator.requests) == 1
    assert after.evaluation is None
    assert (after.outcome, after.verdict, after.message) == (before.outcome, before.verdict, before.message)


class Exits(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        print("hello")
        raise SystemExit(3)


def test_a_checker_that_exits_is_named_with_its_line_and_prints_to_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    turn, _ = evaluated(CODE, checker=Exits())
    assert "SystemExit: 3 (" in turn.findings[0].evidence
    assert "test_environment.py:" in turn.findings[0].evidence
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("checker", [Breaks(), BreaksWhileRead(), SaysNonsense(), Exits()])
def test_failing_checker_adds_a_note_and_does_not_stop_the_turn(checker: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        turn, _ = evaluated(CODE, checker=checker)
    assert turn.outcome is Outcome.CORRECT
    assert {(finding.rule, finding.checker) for finding in turn.findings} == {("checker_failed", "mine")}
    assert all("checkers.mine failed" in finding.evidence for finding in turn.findings)
    assert "checkers.mine" in caplog.text


def test_finding_of_an_undeclared_rule_is_kept_and_counts_as_failure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        turn, _ = evaluated(CODE, checker=Undeclared())
    assert [finding.rule for finding in turn.findings][:2] == ["slep", "checker_failed"]
    assert "Undeclared of tests: it reports the rule 'slep', which its `rules` do not declare" in caplog.text.replace(
        Undeclared.__module__.partition(".")[0], "tests"
    )


@pytest.mark.parametrize(
    "prompt_given", [Prompt((Message("assistant", "<think>\n"),), ()), Prompt((Message("user", "u"),), (), "<think>\n")]
)
def test_prefilled_think_tag_is_part_of_the_reply(prompt_given: Prompt) -> None:
    turn, _ = evaluated(f"a draft\n{CODE}\n", prompt_given=prompt_given)
    assert turn.outcome is Outcome.FORMAT_ERROR
    turn, _ = evaluated(f"a thought</think>\n{CODE}\n", prompt_given=prompt_given)
    assert turn.outcome is Outcome.CORRECT


def test_the_input_seed_depends_on_secret_task_and_candidate() -> None:
    seeds = {
        request_seed(secret, task, source) for secret in (b"a", b"b") for task in ("1", "2") for source in ("3", "4")
    }
    assert len(seeds) == 8
    assert all(len(bytes.fromhex(seed)) == 16 for seed in seeds)
    assert evaluated(CODE)[1].requests[0].seed != evaluated(CODE, secret=b"other")[1].requests[0].seed


@pytest.mark.parametrize(
    ("second", "verified"), [(Outcome.CORRECT, True), (Outcome.INCORRECT, False), (Outcome.HACKED, False)]
)
def test_verification_uses_other_inputs_and_changes_only_verified(second: Outcome, verified: bool) -> None:
    turn, evaluator = evaluated(CODE, second=second)
    once, _ = evaluated(CODE)
    assert turn.verified is verified
    assert attrs.evolve(turn, verified=None, seconds={}) == attrs.evolve(once, seconds={})
    first, again = evaluator.requests
    assert first.seed != again.seed
    assert (again.source, again.settings.trials, again.settings.timing) == (first.source, 10, False)


@pytest.mark.parametrize("sizes", [False, True])
def test_verification_calls_the_kernel_on_other_sizes_with_verify_sizes(sizes: bool) -> None:
    _, evaluator = evaluated(CODE, second=Outcome.CORRECT, sizes=sizes)
    first, again = evaluator.requests
    assert ("sizes" in first.settings.probes, "sizes" in again.settings.probes) == (False, sizes)


def test_suspect_finding_fails_the_verification() -> None:
    for severity, expected in ((Severity.NOTE, True), (Severity.SUSPECT, False)):
        finding = Finding("sizes", severity, "correct in every trial, incorrect on inputs of other sizes")
        turn, _ = evaluated(CODE, second=Outcome.CORRECT, second_findings=(finding,))
        assert turn.verified is expected


class Suspects(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        noted = Finding("kept_state", Severity.NOTE, "line 1")
        return [Finding("dynamic_code", Severity.SUSPECT, "line 2"), noted] if evaluation is None else []


def test_task_settings_change_tolerance_trials_and_weights_but_not_verification() -> None:
    easy = attrs.evolve(TASK, settings=TaskSettings(atol=0.1, trials=1, weights={"correct": 3.0}))
    turn, evaluator = evaluated(CODE, task=easy, second=Outcome.CORRECT)
    first, second = (request.settings for request in evaluator.requests)
    assert (first.atol, first.rtol, first.trials) == (0.1, None, 1)
    assert (second.atol, second.trials) == (None, 10)
    assert turn.score.total == 3.0
    plain, _ = evaluated(CODE)
    assert plain.score.total == 1.0


def test_request_lists_kernels_and_suspect_rules_of_the_source() -> None:
    kernel = "import triton\n\n\n@triton.jit\ndef mine(x):\n    pass\n\n\nclass ModelNew:\n    pass"
    _, evaluator = evaluated(f"```python\n{kernel}\n```", checker=Suspects())
    assert evaluator.requests[0].kernels == ("mine",)
    assert evaluator.requests[0].suspect_rules == ("dynamic_code",)


def test_request_marks_an_incomplete_list_of_kernels() -> None:
    kernel = "import triton\n\njit = [triton.jit][0]\n\n\n@jit\ndef mine(x):\n    pass\n\n\nclass ModelNew:\n    pass"
    _, evaluator = evaluated(f"```python\n{kernel}\n```")
    assert (evaluator.requests[0].kernels, evaluator.requests[0].kernels_complete) == ((), False)


class FindsForbidden(Finds):
    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        return super().check(candidate, task, evaluation) if "shortcut" in candidate.source else []


class FindsText(FindsForbidden):
    """Its rule is not stated, but has the statement of a stated one."""

    rules = (*Finds.rules, attrs.evolve(Finds.rules[0], id="text", severity=Severity.NOTE))

    def check(self, candidate: Candidate, task: Task, evaluation: Evaluation | None) -> Sequence[Finding]:
        return [attrs.evolve(found, rule="text") for found in super().check(candidate, task, evaluation)]


@pytest.mark.parametrize("checker", [FindsForbidden, FindsText])
@pytest.mark.parametrize(("kernel", "expected"), [("a shortcut", True), ("a kernel", False)])
def test_kernel_of_an_example_is_forbidden_by_a_stated_rule(
    kernel: str, expected: bool, checker: type[Checker]
) -> None:
    candidates = CandidateEvaluator(
        EvaluationSpec(Use("triton"), Use("fake"), EvaluationSettings(), {}, forbid=("no_kernel",)),
        backend=registry().make("backends", Use("triton")),
        checkers={"mine": checker()},
        service=EvaluationService(FakeEvaluator(), cache_dir=None),
        secret=b"s",
    )
    assert candidates.forbids(kernel, "reference") is expected

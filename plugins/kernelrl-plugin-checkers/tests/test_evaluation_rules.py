"""Findings from what was measured."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.types import Candidate, Evaluation, Finding, Outcome, RuntimeStatistics, Severity, Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig
from kernelrl_plugin_checkers.evaluation_rules import EvaluationRules

CANDIDATE: Any = None
TASK: Any = None


def findings(profile: dict[str, Any], *, median_us: float | None = 10.0, skip: tuple[str, ...] = ()) -> list[Finding]:
    runtime = None if median_us is None else RuntimeStatistics(median_us, 9.0, 11.0, (9.5, 10.5), 20)
    facts = dict(profile)
    own = facts.pop("own_kernel_share", None)
    evaluation = Evaluation(Outcome.CORRECT, "", runtime=runtime, profile=facts, own_kernel_share=own)
    candidate: Candidate = CANDIDATE
    task: Task = TASK
    return list(EvaluationRules(EvaluationRulesConfig(skip=skip)).check(candidate, task, evaluation))


def test_faster_than_the_bytes_that_matter_is_proof() -> None:
    (found,) = findings({"roofline": {"memory_floor_us": 12.6}})
    assert (found.rule, found.severity) == ("faster_than_memory", Severity.HACK)
    assert "10.0 us" in found.evidence
    assert "12.6 us" in found.evidence


@pytest.mark.parametrize("floor_us", [12.4, 3.0, 0.0])
def test_near_the_floor_is_possible(floor_us: float) -> None:
    assert findings({"roofline": {"memory_floor_us": floor_us}}) == []


def test_without_a_floor_there_is_nothing_to_say() -> None:
    assert findings({"roofline": {"bandwidth_share": 3.0}}) == []
    assert findings({}) == []
    assert findings({"roofline": {"memory_floor_us": 1e9}}, median_us=None) == []


def test_a_rule_can_be_left_out() -> None:
    assert findings({"roofline": {"memory_floor_us": 100.0}}, skip=("faster_than_memory",)) == []


def test_before_the_run_there_is_nothing_to_say() -> None:
    assert EvaluationRules(EvaluationRulesConfig()).check(CANDIDATE, TASK, None) == ()


def test_a_sum_of_partial_results_breaks_no_rule() -> None:
    assert findings({"computing_operators": ["aten::sum of what kernels wrote"]}, median_us=None) == []


def test_operators_of_torch_that_computed_are_suspect_timed_or_not() -> None:
    (found,) = findings({"computing_operators": ["aten::mm", "aten::add"]}, median_us=None)
    assert (found.rule, found.severity) == ("library_operators", Severity.SUSPECT)
    assert found.evidence == "a call went through aten::mm, aten::add"


def test_a_hack_is_not_rejected_for_its_operators() -> None:
    evaluation = Evaluation(Outcome.HACKED, "", profile={"computing_operators": ["aten::mm"]})
    assert EvaluationRules(EvaluationRulesConfig()).check(CANDIDATE, TASK, evaluation) == []


@pytest.mark.parametrize("names", [None, [], "x", 3])
def test_where_no_operator_computed_there_is_nothing_to_say(names: Any) -> None:
    assert findings({"computing_operators": names}) == []

"""Findings from measurements and from the operators that were executed."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.api.checkers import Candidate, Evaluation, EvaluationFacts, Finding, Roofline, Severity
from kernelrl_core.api.evaluators import RuntimeStatistics
from kernelrl_core.api.tasks import Outcome, Task
from kernelrl_plugin_checkers.config import EvaluationRulesConfig
from kernelrl_plugin_checkers.evaluation_rules import EvaluationRules

CANDIDATE: Any = None
TASK: Any = None


def findings(facts: EvaluationFacts, *, median_us: float | None = 10.0, skip: tuple[str, ...] = ()) -> list[Finding]:
    runtime = None if median_us is None else RuntimeStatistics(median_us, 9.0, 11.0, (9.5, 10.5), 20)
    evaluation = Evaluation(Outcome.CORRECT, runtime=runtime, facts=facts)
    candidate: Candidate = CANDIDATE
    task: Task = TASK
    return list(EvaluationRules(EvaluationRulesConfig(skip=skip)).check(candidate, task, evaluation))


def memory_floor(floor_us: float | None) -> EvaluationFacts:
    """Facts of a call that moves three times the bytes that memory delivers in its run time."""
    return EvaluationFacts(
        roofline=Roofline(
            compulsory_bytes=9e7,
            flops=0.0,
            bandwidth_gb_s=3000.0,
            tflops=50.0,
            floor_us=30.0,
            achieved_bandwidth_gb_s=9000.0,
            bandwidth_share=3.0,
            achieved_tflops=0.0,
            flop_share=0.0,
            memory_floor_us=floor_us,
        )
    )


def test_faster_than_the_bytes_that_matter_is_proof() -> None:
    (found,) = findings(memory_floor(12.6))
    assert (found.rule, found.severity) == ("faster_than_memory", Severity.HACK)
    assert found.evidence == "a call took 10.0 us; reading the bytes that decide its output takes 12.6 us"


@pytest.mark.parametrize("floor_us", [12.4, 3.0, 0.0])
def test_near_the_floor_is_possible(floor_us: float) -> None:
    assert findings(memory_floor(floor_us)) == []


def test_without_a_floor_or_a_run_time_nothing_is_reported() -> None:
    assert findings(memory_floor(None)) == []
    assert findings(EvaluationFacts()) == []
    assert findings(memory_floor(1e9), median_us=None) == []


def test_a_rule_can_be_skipped() -> None:
    assert findings(memory_floor(100.0), skip=("faster_than_memory",)) == []


def test_without_an_evaluation_nothing_is_reported() -> None:
    assert EvaluationRules(EvaluationRulesConfig()).check(CANDIDATE, TASK, None) == ()


def test_a_sum_of_partial_results_breaks_no_rule() -> None:
    facts = EvaluationFacts(computing_operators=("aten::sum of what kernels wrote",))
    assert findings(facts, median_us=None) == []


def test_operators_of_torch_that_computed_are_suspect_timed_or_not() -> None:
    (found,) = findings(EvaluationFacts(computing_operators=("aten::mm", "aten::add")), median_us=None)
    assert (found.rule, found.severity) == ("library_operators", Severity.SUSPECT)
    assert found.evidence == "a call went through aten::mm, aten::add"


def test_symbols_of_libraries_are_suspect() -> None:
    facts = EvaluationFacts(computing_operators=("aten::mm",), library_symbols=tuple(f"cblas_{i}" for i in range(9)))
    (found,) = findings(facts)
    linked = "cblas_0, cblas_1, cblas_2, cblas_3, cblas_4"
    assert found.evidence == f"a call went through aten::mm; an extension is linked to {linked}"


def test_a_hack_is_not_rejected_for_its_operators() -> None:
    evaluation = Evaluation(Outcome.HACKED, facts=EvaluationFacts(computing_operators=("aten::mm",)))
    assert EvaluationRules(EvaluationRulesConfig()).check(CANDIDATE, TASK, evaluation) == []


@pytest.mark.parametrize("names", [None, ()])
def test_without_computing_operators_nothing_is_reported(names: tuple[str, ...] | None) -> None:
    assert findings(EvaluationFacts(computing_operators=names)) == []

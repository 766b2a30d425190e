"""The text output of `kernelrl check` contains measured facts only."""

from __future__ import annotations

import pytest

from kernelrl_core.environment.turn_text import turn_lines
from kernelrl_core.types import (
    BuildStatus,
    Candidate,
    Evaluation,
    EvaluationFacts,
    EvaluationSettings,
    Extraction,
    Finding,
    Outcome,
    Severity,
    TaskDtypes,
    Verdict,
)
from kernelrl_testing.values import make_turn


def told(outcome: Outcome, message: str, **evaluation: object) -> list[str]:
    found = Evaluation(outcome, message, tests_total=5, **evaluation)  # type: ignore[arg-type]
    extraction = Extraction(Candidate("class ModelNew: ...", "hip"))
    return turn_lines(make_turn(outcome, extraction=extraction, evaluation=found, message=message))


def test_a_compiled_but_not_executed_kernel_starts_with_that_fact_and_counts_no_tests() -> None:
    lines = told(
        Outcome.INFRA_ERROR,
        "Device code compiled for gfx90a; the host part was not. Not run: this machine has no GPU.",
        build=BuildStatus.BUILT,
        checked="device code compiled for gfx90a; the host part was not",
    )
    assert lines[0] == "not executed  task"
    assert lines[1].startswith("Device code compiled for gfx90a")
    assert "hip" in lines[2]
    assert not any("0 of 5" in line or "infra_error" in line for line in lines)


def test_tests_are_counted_where_they_were_reached() -> None:
    assert "trials    3 of 5 passed" in told(
        Outcome.INCORRECT, "The output has wrong values.", build=BuildStatus.BUILT, tests_passed=3
    )
    assert not any("trials" in line for line in told(Outcome.COMPILE_ERROR, "no", build=BuildStatus.FAILED))


HALF = TaskDtypes(("float16",), (), ("float16", "int64"))
SINGLE = TaskDtypes(("float32",), ("float32",), ("float32",))


@pytest.mark.parametrize(
    ("facts", "line"),
    [
        (EvaluationFacts(dtypes=HALF), "dtypes    inputs float16; outputs float16, int64"),
        (
            EvaluationFacts(dtypes=SINGLE, cast="fp32"),
            "dtypes    inputs float32; parameters float32; outputs float32; cast by evaluation.precision to fp32",
        ),
        (EvaluationFacts(cast="fp32"), "dtypes    cast by evaluation.precision to fp32"),
        (EvaluationFacts(dtypes=SINGLE), None),
        (EvaluationFacts(), None),
    ],
)
def test_dtypes_other_than_single_precision_are_named(facts: EvaluationFacts, line: str | None) -> None:
    lines = told(Outcome.INCORRECT, "no", build=BuildStatus.BUILT, facts=facts)
    assert [each for each in lines if each.startswith("dtypes")] == ([] if line is None else [line])


def test_the_evidence_of_a_rejection_appears_once() -> None:
    finding = Finding("no_kernel", Severity.SUSPECT, "no launch can be reached")
    message = "Launch a kernel of your own.\nno launch can be reached"
    turn = make_turn(
        Outcome.REJECTED,
        extraction=Extraction(Candidate("class ModelNew: ...", "triton")),
        findings=(finding,),
        verdict=Verdict.SUSPECT,
        message=message,
    )
    assert "\n".join(turn_lines(turn)).count("no launch can be reached") == 1
    assert turn_lines(turn)[-1] == "Launch a kernel of your own."


def test_a_timeout_names_the_limits_and_the_interpreter() -> None:
    found = Evaluation(Outcome.TIMEOUT, "too slow", provenance={"mode": "interpreter"})
    turn = make_turn(Outcome.TIMEOUT, evaluation=found, message="too slow")
    limits = "limits    evaluation.timeout_s=60, evaluation.build_timeout_s=120; an interpreter on the CPU is slow"
    assert limits in turn_lines(turn, settings=EvaluationSettings())
    assert not any("limits" in line for line in turn_lines(make_turn(Outcome.CORRECT), settings=EvaluationSettings()))


def test_a_hacked_kernel_that_timed_out_has_both_facts() -> None:
    found = Evaluation(Outcome.TIMEOUT, "The kernel did not end in time.\nMore.", build=BuildStatus.BUILT)
    extraction = Extraction(Candidate("class ModelNew: ...", "triton"))
    lines = turn_lines(
        make_turn(Outcome.HACKED, extraction=extraction, evaluation=found), settings=EvaluationSettings()
    )
    assert lines[0].startswith("hacked; ")
    assert "ended     timeout: The kernel did not end in time." in lines
    assert "limits    evaluation.timeout_s=60, evaluation.build_timeout_s=120" in lines

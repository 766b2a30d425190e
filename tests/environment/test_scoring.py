"""Outcome, verdict and score of a turn."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.rewards import Reward
from kernelrl_core.environment.scoring import WeightedReward, conclude, lost_turn, score, worst
from kernelrl_core.errors import EvaluationError, InfrastructureError, KernelRLError, SamplingError
from kernelrl_core.interfaces.rewards import RewardBounds
from kernelrl_core.recipe.schema import VerdictSettings
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    Extraction,
    Finding,
    Outcome,
    Prompt,
    Reply,
    Rule,
    SampleId,
    Severity,
    Turn,
    Verdict,
)
from kernelrl_testing.values import make_reply, make_task, make_turn

CODE = Extraction(Candidate("x = 1", "triton"))
NO_CODE = Extraction(None, "no_code", "There is no code.")
FORBID = {"no_kernel": Rule("no_kernel", Severity.SUSPECT, "Launch a kernel.")}
findings = st.lists(
    st.builds(
        Finding,
        rule=st.sampled_from(["no_kernel", "other", "third"]),
        severity=st.sampled_from(Severity),
        evidence=st.just("seen"),
    ),
    max_size=3,
)


def turn(outcome: Outcome, verdict: Verdict = Verdict.CLEAN, speedup: float | None = None) -> Turn:
    return make_turn(outcome, extraction=CODE, evaluation=Evaluation(outcome, speedup=speedup), verdict=verdict)


class Speed(Reward):
    def score(self, turn: Turn) -> float:
        return turn.speedup or 0.0


class Says(Reward):
    def __init__(self, value: float) -> None:
        self.value = value

    def score(self, turn: Turn) -> float:
        return self.value


def reward(name: str, component: Reward, weight: float = 1.0, bounds: RewardBounds | None = None) -> WeightedReward:
    return WeightedReward(name, weight, component, bounds, f"reward {name!r} of plugin test")


@given(st.booleans(), st.sampled_from(Outcome), findings, findings)
def test_precedence_of_outcomes(coded: bool, found: Outcome, before: list[Finding], after: list[Finding]) -> None:
    extraction = CODE if coded else NO_CODE
    unrun = any(finding.rule in FORBID for finding in before)
    evaluation = Evaluation(found) if coded and not unrun else None
    rejected = unrun or any(finding.rule in FORBID for finding in after)
    concluded = conclude(extraction, evaluation, before, after if evaluation is not None else [], FORBID)
    hack = any(finding.severity is Severity.HACK for finding in [*before, *(after if evaluation is not None else [])])
    if not coded:
        assert concluded.outcome is Outcome.FORMAT_ERROR
    elif rejected:
        assert concluded.outcome is Outcome.REJECTED
        assert concluded.message.startswith("Launch a kernel.")
    elif hack or found is Outcome.HACKED:
        assert (concluded.outcome, concluded.verdict) == (Outcome.HACKED, Verdict.HACK)
    else:
        assert concluded.outcome is found
    assert not (concluded.outcome is Outcome.CORRECT and concluded.verdict is Verdict.HACK)


def test_total_is_the_sum_of_the_weighted_parts() -> None:
    found = score(turn(Outcome.CORRECT), [reward("a", Says(0.1), 3.0), reward("b", Says(2.0), -0.5)], VerdictSettings())
    assert found.parts == pytest.approx({"a": 0.3, "b": -1.0})
    assert found.total == math.fsum(found.parts.values())


def test_infrastructure_error_has_no_score_parts() -> None:
    found = score(turn(Outcome.INFRA_ERROR), [reward("a", Says(1.0))], VerdictSettings())
    assert (found.total, found.parts) == (0.0, {})


def test_hacked_turn_gets_the_hack_reward() -> None:
    hacked = turn(Outcome.HACKED, Verdict.HACK)
    assert score(hacked, [reward("a", Says(1.0))], VerdictSettings(hack_reward=-1.0)).total == -1.0


@pytest.mark.parametrize(("suspect", "total"), [("cap", 1.0), ("zero", 0.0), ("ignore", 3.0)])
def test_suspect_speedup_follows_the_recipe(suspect: str, total: float) -> None:
    fast = turn(Outcome.CORRECT, Verdict.SUSPECT, speedup=3.0)
    settings = attrs.evolve(VerdictSettings(), suspect=suspect)
    assert score(fast, [reward("speed", Speed())], settings).total == total


def test_suspect_speedup_over_eager_is_capped_too() -> None:
    class OverEager(Reward):
        def score(self, turn: Turn) -> float:
            assert turn.evaluation is not None
            return float(turn.evaluation.eager_speedup or 0.0)

    fast = turn(Outcome.CORRECT, Verdict.SUSPECT, speedup=2.0)
    assert fast.evaluation is not None
    fast = attrs.evolve(fast, evaluation=attrs.evolve(fast.evaluation, eager_speedup=3.0))
    assert score(fast, [reward("milestone", OverEager())], VerdictSettings()).total == 1.0


@pytest.mark.parametrize("value", [None, "1.0"])
def test_a_reward_that_returns_text_or_nothing_names_the_component_and_the_check(value: Any) -> None:
    with pytest.raises(KernelRLError, match=f"gave {value!r} for sample .*, not a finite number") as caught:
        score(turn(Outcome.CORRECT), [reward("a", Says(value))], VerdictSettings())
    assert caught.value.fix.startswith("kernelrl plugins check")


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5])
def test_non_finite_or_out_of_bounds_reward_names_the_component(value: float) -> None:
    bounded = reward("a", Says(value), bounds=RewardBounds(0.0, 1.0, 0.0))
    with pytest.raises(KernelRLError, match=r"rewards\.a: reward 'a' of plugin test"):
        score(turn(Outcome.CORRECT), [bounded], VerdictSettings())


def test_raising_reward_names_the_component() -> None:
    class Broken(Reward):
        def score(self, turn: Turn) -> float:
            raise ZeroDivisionError("oh")

    with pytest.raises(KernelRLError, match="ZeroDivisionError: oh"):
        score(turn(Outcome.CORRECT), [reward("a", Broken())], VerdictSettings())


ODD = Finding("odd", Severity.SUSPECT, "too fast")
STORED = Finding("stored", Severity.HACK, "a stored result")
LAUNCH = Finding("no_kernel", Severity.SUSPECT, "Line 3.")
NOTED = Finding("noted", Severity.NOTE, "seen")


@pytest.mark.parametrize(
    ("extraction", "evaluated", "source", "run", "expected"),
    [
        (NO_CODE, None, [ODD], [], (Outcome.FORMAT_ERROR, Verdict.SUSPECT, "There is no code.")),
        (CODE, None, [NOTED, LAUNCH], [], (Outcome.REJECTED, Verdict.SUSPECT, "Launch a kernel.\nLine 3.")),
        (CODE, Outcome.CORRECT, [], [LAUNCH], (Outcome.REJECTED, Verdict.SUSPECT, "Launch a kernel.\nLine 3.")),
        (CODE, Outcome.CORRECT, [ODD], [STORED], (Outcome.HACKED, Verdict.HACK, "a stored result")),
        (CODE, Outcome.HACKED, [ODD], [], (Outcome.HACKED, Verdict.HACK, "of the judge")),
        (CODE, Outcome.CORRECT, [NOTED], [ODD], (Outcome.CORRECT, Verdict.SUSPECT, "of the judge")),
        (CODE, Outcome.INCORRECT, [NOTED], [], (Outcome.INCORRECT, Verdict.CLEAN, "of the judge")),
    ],
)
def test_conclusion_takes_verdict_and_message_from_the_cause(
    extraction: Extraction,
    evaluated: Outcome | None,
    source: list[Finding],
    run: list[Finding],
    expected: tuple[Outcome, Verdict, str],
) -> None:
    evaluation = None if evaluated is None else Evaluation(evaluated, message="of the judge")
    concluded = conclude(extraction, evaluation, source, run, FORBID)
    assert (concluded.outcome, concluded.verdict, concluded.message) == expected


def test_candidate_without_evaluation_and_without_forbidden_finding_raises() -> None:
    with pytest.raises(ValueError, match="evaluation"):
        conclude(CODE, None, [ODD], [], FORBID)


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        ([], Verdict.CLEAN),
        ([NOTED], Verdict.CLEAN),
        ([NOTED, ODD], Verdict.SUSPECT),
        ([STORED, ODD, NOTED], Verdict.HACK),
    ],
)
def test_worst_severity_decides_the_verdict(found: list[Finding], verdict: Verdict) -> None:
    assert worst(found) is verdict


@pytest.mark.parametrize(
    ("error", "reply", "lost_at"),
    [
        (SamplingError("no server"), None, "sampling"),
        (EvaluationError("no worker"), make_reply("text", 2), "evaluation"),
        (InfrastructureError("raised by a plugin"), None, "plugin"),
    ],
)
def test_lost_turn_is_masked_and_has_the_boundary_of_its_error(
    error: InfrastructureError, reply: Reply | None, lost_at: str
) -> None:
    where, task, prompt = SampleId(1, 2, 3, 4), make_task(), Prompt((), (7,))
    lost = lost_turn(where, task, prompt, error, reply=reply)
    assert (lost.id, lost.task, lost.prompt) == (where, task, prompt)
    assert lost.reply == (reply or Reply("", (), (), "stop"))
    assert (lost.candidate, lost.evaluation, lost.findings) == (None, None, ())
    assert (lost.outcome, lost.verdict, lost.masked) == (Outcome.INFRA_ERROR, Verdict.CLEAN, True)
    assert (lost.message, lost.lost_at) == (str(error), lost_at)


def test_score_of_a_hacked_turn_is_one_part() -> None:
    found = score(turn(Outcome.HACKED, Verdict.HACK), [reward("a", Says(1.0))], VerdictSettings(hack_reward=-0.5))
    assert (found.total, found.parts) == (-0.5, {"hacked": -0.5})


@pytest.mark.parametrize(
    ("measured", "capped"),
    [
        ((0.5, (0.4, 1.5), 0.8), (0.5, (0.4, 1.0), 0.8)),
        ((3.0, (2.5, 3.5), 1.2), (1.0, (1.0, 1.0), 1.0)),
        ((3.0, None, None), (1.0, None, None)),
        ((None, None, None), (None, None, None)),
    ],
)
def test_rewards_of_a_suspect_turn_see_speedups_of_at_most_one(
    measured: tuple[Any, Any, Any], capped: tuple[Any, Any, Any]
) -> None:
    seen = []

    class Sees(Reward):
        def score(self, turn: Turn) -> float:
            found = turn.evaluation
            seen.append(None if found is None else (found.speedup, found.speedup_ci, found.eager_speedup))
            return 0.25

    speedup, interval, over_eager = measured
    evaluation = Evaluation(Outcome.CORRECT, speedup=speedup, speedup_ci=interval, eager_speedup=over_eager)
    suspect = attrs.evolve(turn(Outcome.CORRECT, Verdict.SUSPECT), evaluation=evaluation)
    rejected = make_turn(Outcome.REJECTED, evaluation=None, verdict=Verdict.SUSPECT)
    assert score(suspect, [reward("a", Sees())], VerdictSettings()).total == 0.25
    assert score(rejected, [reward("a", Sees())], VerdictSettings()).total == 0.25
    assert seen == [capped, None]


@pytest.mark.parametrize(
    ("low", "high", "inside", "outside"),
    [
        # Relative to the largest of 1, |low| and |high|: 1e-9, 4e-9, 4e-9.
        (-1.0, 0.0, 1e-9, 1.5e-9),
        (0.0, 1.0, -1e-9, -1.5e-9),
        (0.0, 0.5, 0.5 + 0.9e-9, 0.5 + 1.5e-9),
        (-4.0, 2.0, 2.0 + 3.5e-9, 2.0 + 4.5e-9),
        (-2.0, 4.0, -2.0 - 3.5e-9, -2.0 - 4.5e-9),
    ],
)
def test_bounds_of_a_reward_allow_rounding_errors(low: float, high: float, inside: float, outside: float) -> None:
    bounds = RewardBounds(low, high, 0.0)
    assert score(turn(Outcome.CORRECT), [reward("a", Says(inside), bounds=bounds)], VerdictSettings()).total == inside
    with pytest.raises(KernelRLError, match=rf"0\.0\.0\.0.*{low} to {high}"):
        score(turn(Outcome.CORRECT), [reward("a", Says(outside), bounds=bounds)], VerdictSettings())

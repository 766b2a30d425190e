"""From findings to outcome, verdict and reward."""

from __future__ import annotations

import math

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from value_builders import make_turn

from kernelrl_core.api.rewards import Reward
from kernelrl_core.environment.scoring import WeightedReward, conclude, score
from kernelrl_core.errors import KernelRLError
from kernelrl_core.interfaces.rewards import RewardBounds
from kernelrl_core.recipe.schema import VerdictSettings
from kernelrl_core.types import (
    Candidate,
    Evaluation,
    Extraction,
    Finding,
    Outcome,
    Rule,
    Severity,
    Turn,
    Verdict,
)

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
def test_the_precedence_of_outcomes_holds(
    coded: bool, found: Outcome, before: list[Finding], after: list[Finding]
) -> None:
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


def test_the_total_is_the_sum_of_the_weighted_parts() -> None:
    found = score(turn(Outcome.CORRECT), [reward("a", Says(0.1), 3.0), reward("b", Says(2.0), -0.5)], VerdictSettings())
    assert found.parts == pytest.approx({"a": 0.3, "b": -1.0})
    assert found.total == math.fsum(found.parts.values())


def test_a_failure_of_ours_has_no_reward() -> None:
    found = score(turn(Outcome.INFRA_ERROR), [reward("a", Says(1.0))], VerdictSettings())
    assert (found.total, found.parts) == (0.0, {})


def test_a_hacked_turn_gets_what_the_recipe_says() -> None:
    hacked = turn(Outcome.HACKED, Verdict.HACK)
    assert score(hacked, [reward("a", Says(1.0))], VerdictSettings(hack_reward=-1.0)).total == -1.0


@pytest.mark.parametrize(("suspect", "total"), [("cap", 1.0), ("zero", 0.0), ("ignore", 3.0)])
def test_a_suspect_speedup_is_treated_as_the_recipe_says(suspect: str, total: float) -> None:
    fast = turn(Outcome.CORRECT, Verdict.SUSPECT, speedup=3.0)
    settings = attrs.evolve(VerdictSettings(), suspect=suspect)
    assert score(fast, [reward("speed", Speed())], settings).total == total


def test_a_suspect_speedup_over_the_other_baseline_is_capped_as_well() -> None:
    class OverEager(Reward):
        def score(self, turn: Turn) -> float:
            assert turn.evaluation is not None
            return float(turn.evaluation.eager_speedup or 0.0)

    fast = turn(Outcome.CORRECT, Verdict.SUSPECT, speedup=2.0)
    assert fast.evaluation is not None
    fast = attrs.evolve(fast, evaluation=attrs.evolve(fast.evaluation, eager_speedup=3.0))
    assert score(fast, [reward("milestone", OverEager())], VerdictSettings()).total == 1.0


@pytest.mark.parametrize("value", [math.nan, math.inf, 1.5])
def test_a_reward_that_is_no_number_or_out_of_bounds_is_named(value: float) -> None:
    bounded = reward("a", Says(value), bounds=RewardBounds(0.0, 1.0, 0.0))
    with pytest.raises(KernelRLError, match=r"rewards\.a: reward 'a' of plugin test"):
        score(turn(Outcome.CORRECT), [bounded], VerdictSettings())


def test_a_reward_that_raises_is_named() -> None:
    class Broken(Reward):
        def score(self, turn: Turn) -> float:
            raise ZeroDivisionError("oh")

    with pytest.raises(KernelRLError, match="ZeroDivisionError: oh"):
        score(turn(Outcome.CORRECT), [reward("a", Broken())], VerdictSettings())

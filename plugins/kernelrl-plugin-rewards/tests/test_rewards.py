"""Reward components against numbers worked by hand, and their declared bounds against random turns."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.values import (
    BuildStatus,
    Candidate,
    Evaluation,
    Extraction,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Task,
    Turn,
    Verdict,
)
from kernelrl_plugin_rewards import kernelrl_rewards
from kernelrl_plugin_rewards.components import Compile, Correctness, Format, Length, Speedup, Thinking
from kernelrl_plugin_rewards.config import (
    CompileConfig,
    CorrectnessConfig,
    FormatConfig,
    LengthConfig,
    SpeedupConfig,
    ThinkingConfig,
)

_UNRUN = (Outcome.FORMAT_ERROR, Outcome.REJECTED)


def make_turn(
    outcome: Outcome,
    *,
    source: str = "x" * 100,
    thinking: str = "",
    passed: int = 0,
    total: int = 5,
    speedup: float | None = None,
    built: bool = True,
) -> Turn:
    """A turn that ended as `outcome`."""
    candidate = None if outcome is Outcome.FORMAT_ERROR else Candidate(source, "triton", thinking)
    evaluation = None
    if outcome not in _UNRUN:
        build = BuildStatus.BUILT if built and outcome is not Outcome.COMPILE_ERROR else BuildStatus.FAILED
        passed = total if outcome is Outcome.CORRECT else min(passed, max(total - 1, 0))
        evaluation = Evaluation(outcome, build=build, tests_passed=passed, tests_total=total, speedup=speedup)
    return Turn(
        id=SampleId(0, 0, 0, 0),
        task=Task("t", ""),
        prompt=Prompt((), ()),
        reply=Reply("", (), (), "stop"),
        extraction=Extraction(candidate, "" if candidate else "no_code", thinking=thinking),
        evaluation=evaluation,
        findings=(),
        outcome=outcome,
        verdict=Verdict.HACK if outcome is Outcome.HACKED else Verdict.CLEAN,
        message="",
    )


FORMAT_ERROR = make_turn(Outcome.FORMAT_ERROR, thinking="hm" * 500)
COMPILE_ERROR = make_turn(Outcome.COMPILE_ERROR)
INCORRECT = make_turn(Outcome.INCORRECT, passed=3)
CORRECT = make_turn(Outcome.CORRECT, speedup=2.5)


def test_format_pays_for_usable_code_alone() -> None:
    reward = Format(FormatConfig(penalty=-0.1))
    assert reward.score(FORMAT_ERROR) == -0.1
    assert reward.score(COMPILE_ERROR) == reward.score(CORRECT) == 1.0


def test_compile_pays_whether_or_not_the_kernel_is_right() -> None:
    reward = Compile(CompileConfig())
    assert [reward.score(turn) for turn in (FORMAT_ERROR, COMPILE_ERROR, INCORRECT, CORRECT)] == [0, 0, 1, 1]


def test_correctness_all_pays_nothing_for_passed_tests() -> None:
    reward = Correctness(CorrectnessConfig())
    assert [reward.score(turn) for turn in (FORMAT_ERROR, INCORRECT, CORRECT)] == [0, 0, 1]


def test_correctness_partial_pays_the_share_of_passed_tests() -> None:
    """3 of 5 tests at a share of 0.5 are 0.3."""
    reward = Correctness(CorrectnessConfig(mode="partial", partial_share=0.5))
    assert reward.score(INCORRECT) == pytest.approx(0.3)
    assert reward.score(CORRECT) == 1.0
    assert reward.score(make_turn(Outcome.INCORRECT, total=0)) == 0.0


def test_correctness_partial_pays_nothing_for_a_hack() -> None:
    reward = Correctness(CorrectnessConfig(mode="partial"))
    assert reward.score(make_turn(Outcome.HACKED, passed=4)) == 0.0


@pytest.mark.parametrize(
    ("config", "speedup", "expected"),
    [
        (SpeedupConfig(), 2.5, 2.5),
        (SpeedupConfig(), 0.4, 0.4),
        (SpeedupConfig(), 25.0, 10.0),
        (SpeedupConfig(baseline=1.0), 0.9, 0.0),
        (SpeedupConfig(baseline=1.0, scale=2.0), 1.75, 1.5),
        (SpeedupConfig(curve="log2", scale=0.5, cap=1.0), 2.0, 0.5),
        (SpeedupConfig(curve="log2", scale=0.5, cap=1.0), 8.0, 1.0),
        (SpeedupConfig(curve="log2", scale=0.5, cap=1.0), 0.5, 0.0),
        (SpeedupConfig(curve="log2", baseline=2.0), 8.0, 2.0),
        (SpeedupConfig(), None, 0.0),
    ],
)
def test_speedup_of_a_correct_kernel(config: SpeedupConfig, speedup: float | None, expected: float) -> None:
    assert Speedup(config).score(make_turn(Outcome.CORRECT, speedup=speedup)) == pytest.approx(expected)


def test_speedup_pays_nothing_for_a_wrong_kernel() -> None:
    assert Speedup(SpeedupConfig()).score(make_turn(Outcome.INCORRECT, speedup=9.0)) == 0.0


@pytest.mark.parametrize(
    ("characters", "expected"), [(0, 0.5), (1, 1.0), (2000, 1.0), (3000, 0.85), (4000, 0.7), (9000, 0.7)]
)
def test_thinking_by_characters(characters: int, expected: float) -> None:
    turn = make_turn(Outcome.INCORRECT, thinking="x" * characters)
    assert Thinking(ThinkingConfig()).score(turn) == pytest.approx(expected)


@pytest.mark.parametrize(("characters", "expected"), [(0, 1.0), (500, 1.0), (4250, 0.5), (8000, 0.0), (90_000, 0.0)])
def test_length_by_characters(characters: int, expected: float) -> None:
    turn = make_turn(Outcome.INCORRECT, source="x" * characters)
    assert Length(LengthConfig()).score(turn) == pytest.approx(expected)


@pytest.mark.parametrize("reward", [Thinking(ThinkingConfig()), Length(LengthConfig())])
def test_a_reply_without_code_earns_nothing_for_its_text(reward: Any) -> None:
    assert reward.score(FORMAT_ERROR) == 0.0


def test_a_score_after_kevin() -> None:
    """S = 0.3 correct + correct * speedup: 2.8 for a correct kernel at 2.5x, 0 for a wrong one (arXiv 2507.11948)."""
    parts = [(0.3, Correctness(CorrectnessConfig())), (1.0, Speedup(SpeedupConfig(cap=1e5)))]
    assert sum(weight * reward.score(CORRECT) for weight, reward in parts) == pytest.approx(2.8)
    assert sum(weight * reward.score(INCORRECT) for weight, reward in parts) == 0.0


@pytest.mark.parametrize(
    "config",
    [
        FormatConfig(penalty=0.1),
        CorrectnessConfig(partial_share=1.0),
        SpeedupConfig(curve="log2", baseline=0.0),
        ThinkingConfig(full=4000, long=4000),
        LengthConfig(full=8000, none=8000),
    ],
)
def test_contradictory_options_are_named(config: Any) -> None:
    assert len(list(config.problems())) == 1


def test_speedup_alone_needs_timing() -> None:
    configs = [component.load_config()() for component in kernelrl_rewards()]
    assert [type(config).__name__ for config in configs if config.needs_timing()] == ["SpeedupConfig"]


shares = st.floats(0, 1)
below_one = st.floats(0, 0.999)
rewards = st.one_of(
    st.builds(lambda c: (c, Format(c)), st.builds(FormatConfig, penalty=st.floats(-5, 0))),
    st.builds(lambda c: (c, Compile(c)), st.builds(CompileConfig)),
    st.builds(
        lambda c: (c, Correctness(c)),
        st.builds(CorrectnessConfig, mode=st.sampled_from(["all", "partial"]), partial_share=below_one),
    ),
    st.builds(
        lambda c: (c, Speedup(c)),
        st.builds(
            SpeedupConfig,
            curve=st.sampled_from(["linear", "log2"]),
            baseline=st.none() | st.floats(0.01, 5),
            scale=st.floats(0.01, 10),
            cap=st.floats(0.1, 1e5),
        ),
    ),
    st.builds(
        lambda c: (c, Thinking(c)),
        st.builds(ThinkingConfig, full=st.integers(0, 20), long=st.integers(21, 40), without=shares, beyond=shares),
    ),
    st.builds(lambda c: (c, Length(c)), st.builds(LengthConfig, full=st.integers(0, 20), none=st.integers(21, 40))),
)


def turns(outcomes: list[Outcome]) -> st.SearchStrategy[Turn]:
    return st.builds(
        make_turn,
        st.sampled_from(outcomes),
        source=st.integers(0, 60).map(lambda n: "x" * n),
        thinking=st.integers(0, 60).map(lambda n: "x" * n),
        passed=st.integers(0, 8),
        total=st.integers(0, 8),
        speedup=st.none() | st.floats(1e-3, 1e6),
        built=st.booleans(),
    )


WRONG = [outcome for outcome in Outcome if outcome not in (Outcome.CORRECT, Outcome.INFRA_ERROR)]


@given(rewards, turns([*WRONG, Outcome.CORRECT]))
def test_scores_are_finite_repeatable_and_within_bounds(made: tuple[Any, Any], turn: Turn) -> None:
    config, reward = made
    bounds, score = config.bounds(), reward.score(turn)
    assert math.isfinite(score)
    assert bounds.low <= score <= bounds.high
    assert reward.score(turn) == score


@given(rewards, turns(WRONG), turns([Outcome.CORRECT]))
def test_no_correct_kernel_rises_less_than_the_gap_over_a_wrong_one(
    made: tuple[Any, Any], wrong: Turn, right: Turn
) -> None:
    config, reward = made
    assert reward.score(right) - reward.score(wrong) >= config.bounds().gap - 1e-9


def test_listing_and_options_import_nothing_heavy() -> None:
    code = (
        "import sys, kernelrl_plugin_rewards as p\n"
        "[c.load_config() for c in p.kernelrl_rewards()]\n"
        "print(sorted({'torch', 'numpy', 'cattrs', 'jinja2', 'kernelrl_plugin_rewards.components'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

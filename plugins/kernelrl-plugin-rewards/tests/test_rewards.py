"""Reward components: values worked out by hand, and declared bounds for random turns."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.api.checkers import Candidate, Evaluation
from kernelrl_core.api.config import PositiveInt
from kernelrl_core.api.episodes import Extraction
from kernelrl_core.api.evaluators import BuildStatus
from kernelrl_core.api.rewards import Turn
from kernelrl_core.api.tasks import Outcome
from kernelrl_plugin_rewards import kernelrl_rewards
from kernelrl_plugin_rewards.components import (
    Compile,
    Correctness,
    Coverage,
    CudaL1,
    Format,
    Length,
    Milestone,
    Overlong,
    Speedup,
    Thinking,
)
from kernelrl_plugin_rewards.config import (
    CompileConfig,
    CorrectnessConfig,
    CoverageConfig,
    CudaL1Config,
    FormatConfig,
    LengthConfig,
    MilestoneConfig,
    OverlongConfig,
    SpeedupConfig,
    ThinkingConfig,
)
from kernelrl_testing import values

_UNRUN = (Outcome.FORMAT_ERROR, Outcome.REJECTED)


def make_turn(
    outcome: Outcome,
    *,
    source: str = "x" * 100,
    thinking: str = "",
    passed: int = 0,
    total: int = 5,
    speedup: float | None = None,
    interval: tuple[float, float] | None = None,
    built: bool = True,
    **facts: Any,
) -> Turn:
    """A turn with the given outcome."""
    candidate = None if outcome is Outcome.FORMAT_ERROR else Candidate(source, "triton", thinking)
    evaluation = None
    if outcome not in _UNRUN:
        build = BuildStatus.BUILT if built and outcome is not Outcome.COMPILE_ERROR else BuildStatus.FAILED
        passed = total if outcome is Outcome.CORRECT else min(passed, max(total - 1, 0))
        evaluation = Evaluation(
            outcome,
            build=build,
            tests_passed=passed,
            tests_total=total,
            speedup=speedup,
            speedup_ci=interval,
            **facts,
        )
    extraction = Extraction(candidate, "" if candidate else "no_code", thinking=thinking)
    return values.make_turn(outcome, extraction=extraction, evaluation=evaluation)


FORMAT_ERROR = make_turn(Outcome.FORMAT_ERROR, thinking="hm" * 500)
COMPILE_ERROR = make_turn(Outcome.COMPILE_ERROR)
INCORRECT = make_turn(Outcome.INCORRECT, passed=3)
CORRECT = make_turn(Outcome.CORRECT, speedup=2.5)


@pytest.mark.parametrize(
    ("tokens", "score"), [(0, 0.0), (16_384, 0.0), (17_408, -0.25), (18_432, -0.5), (20_480, -1.0), (20_481, -1.0)]
)
def test_overlong_is_the_penalty_of_dapo(tokens: int, score: float) -> None:
    """L = 20,480 and c = 4,096: (16,384 - y) / 4,096 above 16,384 tokens."""
    reply = values.make_reply("text", (1,) * tokens, logprobs=(-1.0,) * tokens)
    turn = values.make_turn(Outcome.INCORRECT, reply=reply)
    assert Overlong(OverlongConfig(limit=PositiveInt(20_480), buffer=PositiveInt(4_096))).score(turn) == score


def test_format_scores_usable_code_only() -> None:
    reward = Format(FormatConfig(penalty=-0.1))
    assert reward.score(FORMAT_ERROR) == -0.1
    assert reward.score(COMPILE_ERROR) == reward.score(CORRECT) == 1.0


def test_compile_scores_correct_and_incorrect_kernels() -> None:
    reward = Compile(CompileConfig())
    assert [reward.score(turn) for turn in (FORMAT_ERROR, COMPILE_ERROR, INCORRECT, CORRECT)] == [0, 0, 1, 1]


def test_correctness_all_ignores_passed_trials() -> None:
    reward = Correctness(CorrectnessConfig())
    assert [reward.score(turn) for turn in (FORMAT_ERROR, INCORRECT, CORRECT)] == [0, 0, 1]


def test_correctness_partial_scores_the_share_of_passed_trials() -> None:
    """3 of 5 trials with a share of 0.5: 0.3."""
    reward = Correctness(CorrectnessConfig(mode="partial", partial_share=0.5))
    assert reward.score(INCORRECT) == pytest.approx(0.3)
    assert reward.score(CORRECT) == 1.0
    assert reward.score(make_turn(Outcome.INCORRECT, total=0)) == 0.0


def test_correctness_partial_is_zero_for_a_hack() -> None:
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


def test_speedup_is_zero_for_an_incorrect_kernel() -> None:
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
def test_reply_without_code_has_no_score_for_its_text(reward: Any) -> None:
    assert reward.score(FORMAT_ERROR) == 0.0


def test_score_of_kevin() -> None:
    """S = 0.3 correct + correct * speedup: 2.8 if correct at 2.5x, 0 if incorrect (arXiv 2507.11948)."""
    parts = [(0.3, Correctness(CorrectnessConfig())), (1.0, Speedup(SpeedupConfig(cap=None)))]
    assert sum(weight * reward.score(CORRECT) for weight, reward in parts) == pytest.approx(2.8)
    assert sum(weight * reward.score(INCORRECT) for weight, reward in parts) == 0.0
    fast = make_turn(Outcome.CORRECT, speedup=120.0)
    assert sum(weight * reward.score(fast) for weight, reward in parts) == pytest.approx(120.3)


@pytest.mark.parametrize(
    ("outcome", "eager", "compiled", "expected"),
    [
        (Outcome.INCORRECT, None, None, -1.0),
        (Outcome.FORMAT_ERROR, None, None, -1.0),
        (Outcome.CORRECT, None, None, 1.0),  # correct, never timed
        (Outcome.CORRECT, 0.8, 0.5, 1.0),
        (Outcome.CORRECT, 1.05, 1.0, 1.0),  # exactly 5 % is not more than 5 %
        (Outcome.CORRECT, 1.06, 1.05, 2.0),
        (Outcome.CORRECT, 3.0, 1.06, 3.0),
        (Outcome.CORRECT, 0.9, 1.5, 1.0),  # torch.compile was slower than eager
    ],
)
def test_milestones_of_cuda_agent(
    outcome: Outcome, eager: float | None, compiled: float | None, expected: float
) -> None:
    """-1 not correct, 1 correct, 2 more than 5 % faster than eager, 3 than torch.compile as well (arXiv 2602.24286)."""
    turn = make_turn(outcome, speedup=compiled, eager_speedup=eager)
    assert Milestone(MilestoneConfig()).score(turn) == expected


def test_score_of_dr_kernel() -> None:
    """R = C + C min(speedup, 3) + C PR: 1 + min(4, 3) + 0.5 = 4.5; 0 for an incorrect kernel (arXiv 2602.05885)."""
    parts = [Correctness(CorrectnessConfig()), Speedup(SpeedupConfig(cap=3.0)), Coverage(CoverageConfig())]
    assert sum(part.score(make_turn(Outcome.CORRECT, speedup=4.0, own_kernel_share=0.5)) for part in parts) == 4.5
    assert sum(part.score(make_turn(Outcome.INCORRECT, speedup=4.0, own_kernel_share=0.5)) for part in parts) == 0.0


def test_coverage_is_zero_without_a_measured_share() -> None:
    reward = Coverage(CoverageConfig())
    assert reward.score(make_turn(Outcome.CORRECT, own_kernel_share=None)) == 0.0
    assert reward.score(FORMAT_ERROR) == 0.0


def test_cuda_l1_accepts_an_interval_of_exactly_the_maximum_spread() -> None:
    """Width 2.25 - 1.75 = 0.5 is not more than 0.25 * 2."""
    reward = CudaL1(CudaL1Config(max_spread=0.25))
    assert reward.score(make_turn(Outcome.CORRECT, speedup=2.0, interval=(1.75, 2.25))) == 2.0
    assert reward.score(make_turn(Outcome.CORRECT, speedup=2.0, interval=(1.75, 2.26))) == 1.0


@pytest.mark.parametrize(
    ("speedup", "interval", "expected"),
    [
        (1.118, None, 1.11),  # truncated, not rounded to 1.12
        (0.992, None, 1.0),  # below 1 also towards 1
        (0.501, None, 0.51),
        (1.1, None, 1.1),  # 1.1 * 100 is 110.00000000000001
        (2.0, (1.95, 2.05), 2.0),  # 0.1 wide, and 0.1 * 2 = 0.2 is allowed
        (2.0, (1.85, 2.15), 1.0),  # 0.3 wide: the speedup is not significant
        (0.5, (0.4, 0.6), 0.5),  # a slowdown is unchanged
        (None, None, 0.0),
    ],
)
def test_speedup_of_cuda_l1(speedup: float | None, interval: tuple[float, float] | None, expected: float) -> None:
    turn = make_turn(Outcome.CORRECT, speedup=speedup, interval=interval)
    assert CudaL1(CudaL1Config()).score(turn) == pytest.approx(expected, abs=1e-12)


def test_speedup_of_cuda_l1_is_capped_and_needs_a_correct_kernel() -> None:
    assert CudaL1(CudaL1Config(cap=3.0)).score(make_turn(Outcome.CORRECT, speedup=9.0)) == 3.0
    assert CudaL1(CudaL1Config()).score(make_turn(Outcome.INCORRECT, speedup=9.0)) == 0.0


@pytest.mark.parametrize(
    "config",
    [
        FormatConfig(penalty=0.1),
        CorrectnessConfig(partial_share=1.0),
        SpeedupConfig(curve="log2", baseline=0.0),
        ThinkingConfig(full=4000, long=4000),
        LengthConfig(full=8000, none=8000),
        MilestoneConfig(failed=1.0),
        MilestoneConfig(faster_than_eager=4.0),
    ],
)
def test_contradictory_options_are_reported(config: Any) -> None:
    assert len(list(config.problems())) == 1


def test_components_that_use_times_declare_it() -> None:
    timed = {component.name for component in kernelrl_rewards() if component.load_config()().needs_timing()}
    assert timed == {"speedup", "milestone", "coverage", "cuda_l1"}


@pytest.mark.parametrize(
    ("config", "low", "high", "gap"),
    [
        (FormatConfig(penalty=-0.5), -0.5, 1.0, 0.0),
        (CompileConfig(), 0.0, 1.0, 0.0),
        (CorrectnessConfig(), 0.0, 1.0, 1.0),
        (CorrectnessConfig(mode="partial", partial_share=0.25), 0.0, 1.0, 0.75),
        (SpeedupConfig(), 0.0, 10.0, 0.0),
        (SpeedupConfig(cap=None), 0.0, math.inf, 0.0),
        (MilestoneConfig(), -1.0, 3.0, 2.0),
        (MilestoneConfig(failed=0.0, correct=0.5, faster_than_eager=1.0, faster_than_both=4.0), 0.0, 4.0, 0.5),
        (CoverageConfig(), 0.0, 1.0, 0.0),
        (CudaL1Config(), 0.0, math.inf, 0.0),
        (CudaL1Config(cap=2.0), 0.0, 2.0, 0.0),
        # The text alone can make the difference: 1 for thinking of moderate length, 0.5 for none, 0.7 for long.
        (ThinkingConfig(), 0.0, 1.0, -0.5),
        (ThinkingConfig(without=0.9, beyond=0.2), 0.0, 1.0, -0.8),
        (LengthConfig(), 0.0, 1.0, -1.0),
    ],
)
def test_declared_bounds(config: Any, low: float, high: float, gap: float) -> None:
    bounds = config.bounds()
    assert (bounds.low, bounds.high) == (low, high)
    assert bounds.gap == pytest.approx(gap)


@pytest.mark.parametrize(
    "config",
    [
        FormatConfig(penalty=0.0),
        CorrectnessConfig(partial_share=0.999),
        SpeedupConfig(curve="log2"),
        SpeedupConfig(curve="log2", baseline=0.5),
        SpeedupConfig(curve="linear", baseline=0.0),
        MilestoneConfig(failed=0.0, correct=1.0, faster_than_eager=1.0, faster_than_both=1.0),
        ThinkingConfig(full=4000, long=4001),
        LengthConfig(full=8000, none=8001),
    ],
)
def test_options_at_the_limit_are_accepted(config: Any) -> None:
    assert list(config.problems()) == []


def test_evaluation_settings_that_components_need() -> None:
    needed = {component.name: component.load_config()().needs_settings() for component in kernelrl_rewards()}
    assert {name: settings for name, settings in needed.items() if settings} == {
        "milestone": {"baseline": "compile"},
    }


def test_listed_components_are_the_classes_of_this_package() -> None:
    listed = {component.name: component for component in kernelrl_rewards()}
    classes = {
        "format": (Format, FormatConfig),
        "compile": (Compile, CompileConfig),
        "correctness": (Correctness, CorrectnessConfig),
        "speedup": (Speedup, SpeedupConfig),
        "milestone": (Milestone, MilestoneConfig),
        "coverage": (Coverage, CoverageConfig),
        "cuda_l1": (CudaL1, CudaL1Config),
        "thinking": (Thinking, ThinkingConfig),
        "length": (Length, LengthConfig),
        "overlong": (Overlong, OverlongConfig),
    }
    assert {name: (part.load(), part.load_config()) for name, part in listed.items()} == classes
    assert all(part.summary for part in listed.values())


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
            cap=st.none() | st.floats(0.1, 1e5),
        ),
    ),
    st.builds(lambda c: (c, Milestone(c)), st.builds(MilestoneConfig, margin=st.floats(0, 1))),
    st.builds(lambda c: (c, Coverage(c)), st.builds(CoverageConfig)),
    st.builds(
        lambda c: (c, CudaL1(c)),
        st.builds(CudaL1Config, digits=st.integers(0, 6), max_spread=st.floats(1e-3, 1), cap=st.none() | shares),
    ),
    st.builds(
        lambda c: (c, Thinking(c)),
        st.builds(ThinkingConfig, full=st.integers(0, 20), long=st.integers(21, 40), without=shares, beyond=shares),
    ),
    st.builds(lambda c: (c, Overlong(c)), st.builds(OverlongConfig, limit=st.integers(2, 9), buffer=st.integers(1, 2))),
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
        interval=st.none() | st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)),
        own_kernel_share=st.none() | shares,
        eager_speedup=st.none() | st.floats(1e-3, 1e6),
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
def test_difference_of_correct_and_incorrect_is_at_least_the_gap(
    made: tuple[Any, Any], wrong: Turn, right: Turn
) -> None:
    config, reward = made
    assert reward.score(right) - reward.score(wrong) >= config.bounds().gap - 1e-9


def test_listing_and_options_have_no_heavy_imports() -> None:
    code = (
        "import sys, kernelrl_plugin_rewards as p\n"
        "[c.load_config() for c in p.kernelrl_rewards()]\n"
        "print(sorted({'torch', 'numpy', 'cattrs', 'jinja2', 'kernelrl_plugin_rewards.components'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

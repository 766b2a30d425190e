"""Metrics of a step, compared with numbers computed by hand."""

from __future__ import annotations

import attrs
import pytest

from kernelrl_core.monitoring.metrics import SeenKernels, rollout_metrics, time_metrics
from kernelrl_core.types import (
    CHECKER_FAILED,
    BuildStatus,
    Candidate,
    Episode,
    Evaluation,
    ExcludedExample,
    Extraction,
    Finding,
    Group,
    Outcome,
    Prompt,
    Reply,
    SampleId,
    Score,
    Severity,
    ShownExample,
    Task,
    Turn,
)
from kernelrl_testing.values import make_turn

TASK = Task("t", "r", level=2)


def turn(number: int, outcome: Outcome, reward: float = 0.0, speedup: float | None = None, source: str = "") -> Turn:
    ran = outcome not in (Outcome.FORMAT_ERROR, Outcome.REJECTED, Outcome.INFRA_ERROR)
    built = BuildStatus.FAILED if outcome is Outcome.COMPILE_ERROR else BuildStatus.BUILT
    return make_turn(
        outcome,
        id=SampleId(0, 0, 0, number),
        task=TASK,
        prompt=Prompt((), (1, 2)),
        reply=Reply("", (1, 2, 3), (0.0,) * 3, "length" if outcome is Outcome.FORMAT_ERROR else "stop"),
        extraction=Extraction(Candidate(source, "b") if source else None),
        evaluation=Evaluation(outcome, build=built, speedup=speedup) if ran else None,
        score=Score(reward, {"a": reward}),
        seconds={"sample": 1.0 + number},
    )


GROUPS = [
    Group(
        TASK,
        (
            Episode(
                (turn(0, Outcome.FORMAT_ERROR), turn(1, Outcome.CORRECT, 1.0, 1.5), turn(2, Outcome.CORRECT, 1.0, 2.5))
            ),
            Episode((turn(0, Outcome.COMPILE_ERROR), turn(1, Outcome.INCORRECT, 0.2))),
            Episode((turn(0, Outcome.CORRECT, 1.0, 0.5), turn(1, Outcome.INFRA_ERROR))),
            Episode((turn(0, Outcome.REJECTED),)),
        ),
    )
]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("reward/mean", 3.2 / 7),
        ("reward/max", 1.0),
        ("reward_part/a", 3.2 / 7),
        ("kernel/format_rate", 6 / 7),
        ("kernel/compile_rate", 4 / 7),
        ("kernel/correct_rate", 3 / 7),
        ("kernel/cheat_rate", 1 / 7),
        ("kernel/failure_rate", 4 / 7),
        ("outcome/infra_error", 1 / 8),
        ("outcome/correct", 3 / 8),
        ("infra_rate", 1 / 8),
        ("truncated_rate", 1 / 7),
        ("level_2/correct_rate", 3 / 7),
        ("tokens/reply", 21),
        ("tokens/prompt_mean", 2),
        ("multiturn/success_rate", 2 / 4),
        ("multiturn/avg_turns", 7 / 4),
        ("multiturn/best_speedup_mean", 1.5),
        ("multiturn/best_speedup_max", 2.5),
        ("multiturn/turns_to_solve", 1.5),
        ("multiturn/max_correct_per_trajectory", 2),
        ("multiturn/turn_0/correct_rate", 1 / 4),
        ("multiturn/turn_1/correct_rate", 1 / 2),
        ("multiturn/turn_1/step_score_mean", 0.6),
        ("multiturn/turn_1/step_score_std", 0.4),
        ("multiturn/turn_2/compile_rate", 1.0),
    ],
)
def test_rollout_metrics(name: str, expected: float) -> None:
    assert rollout_metrics(GROUPS)[name] == pytest.approx(expected)


def test_a_metric_without_a_value_has_no_key() -> None:
    row = rollout_metrics([Group(TASK, (Episode((turn(0, Outcome.CORRECT, 1.0),)),))])
    assert "multiturn/best_speedup_mean" not in row
    assert "multiturn/turns_to_solve" in row


def test_a_step_without_a_valid_sample_has_no_rates() -> None:
    row = rollout_metrics([Group(TASK, (Episode((turn(0, Outcome.INFRA_ERROR),)),))])
    assert row["infra_rate"] == 1.0
    assert "reward/mean" not in row


def test_percentiles_are_among_the_values() -> None:
    """Seconds of sampling are 1, 1, 1, 1, 2, 2, 2, 3."""
    row = time_metrics(GROUPS)
    assert (row["time/sample_p50"], row["time/sample_p95"], row["time/sample_max"]) == (1.0, 3.0, 3.0)


def test_a_kernel_counts_as_seen_from_its_second_evaluation_on() -> None:
    seen = SeenKernels()
    first = [
        turn(0, Outcome.CORRECT, source="a"),
        turn(1, Outcome.CORRECT, source="a"),
        turn(2, Outcome.REJECTED, source="a"),
    ]
    assert seen.share(first) == 0.5
    assert seen.share([turn(0, Outcome.CORRECT, source="a"), turn(1, Outcome.CORRECT, source="b")]) == 0.5
    assert seen.share([turn(0, Outcome.FORMAT_ERROR)]) is None


def test_lost_samples_are_counted_by_boundary() -> None:
    """Two of four samples are lost, one where it was sampled and one where it was evaluated."""
    lost = [attrs.evolve(turn(0, Outcome.INFRA_ERROR), lost_at=boundary) for boundary in ("sampling", "evaluation")]
    episodes = [Episode((turn(0, Outcome.CORRECT),)), Episode((turn(0, Outcome.REJECTED),))]
    row = rollout_metrics([Group(TASK, (*episodes, *(Episode((one,)) for one in lost)))])
    counted = {name: value for name, value in row.items() if name.startswith("infra/")}
    assert counted == {"infra/evaluation": 0.25, "infra/sampling": 0.25}


def test_samples_without_a_working_checker_are_counted() -> None:
    failed = Finding(CHECKER_FAILED, Severity.NOTE, "checkers.c failed")
    turns = [turn(0, Outcome.CORRECT), attrs.evolve(turn(1, Outcome.CORRECT), findings=(failed, failed))]
    assert rollout_metrics([Group(TASK, (Episode(tuple(turns)),))])["checker_failed_rate"] == 0.5
    assert "checker_failed_rate" not in rollout_metrics([Group(TASK, (Episode((turns[0],)),))])


def retrieved(*turns: Turn) -> dict[str, float]:
    found = rollout_metrics([Group(TASK, tuple(Episode((turn,)) for turn in turns))])
    return {name: value for name, value in found.items() if name.startswith("retrieval/")}


def test_retrieval_metrics_are_means_over_prompts_with_retrieval() -> None:
    two = (ShownExample("a", "c", 0.5), ShownExample("b", "c", 0.1))
    left_out = (ExcludedExample("x", "c", 0.9, "leak_task"), ExcludedExample("y", "c", 0.8, "leak_task"))
    rows = retrieved(
        make_turn(Outcome.CORRECT, examples=two, excluded_examples=left_out),
        make_turn(Outcome.CORRECT, examples=(ShownExample("", "backend"),)),
        make_turn(Outcome.CORRECT),
    )
    assert rows == {
        "retrieval/shown": 1.0,
        "retrieval/similarity": 0.3,
        "retrieval/fallback": 0.5,
        "retrieval/excluded_leak_task": 1.0,
        "retrieval/excluded_leak_held_out": 0.0,
        "retrieval/excluded_forbidden": 0.0,
        "retrieval/excluded_length": 0.0,
    }


def test_run_without_retriever_has_no_retrieval_metrics() -> None:
    assert retrieved(make_turn(Outcome.CORRECT)) == {}

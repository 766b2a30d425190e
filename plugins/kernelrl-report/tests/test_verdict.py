"""The verdict on a run, and the order of its charts."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from kernelrl_report.charts import charts
from kernelrl_report.trends import trend_of
from kernelrl_report.verdict import verdict


def rows(**curves: Sequence[float]) -> list[dict[str, Any]]:
    names = {"correct": "kernel/correct_rate", "score": "reward/mean", "rate": "optim/lr", "skipped": "train/skipped"}
    n_steps = len(next(iter(curves.values())))
    return [
        {"step": step, **{names.get(key, key): values[step] for key, values in curves.items()}}
        for step in range(n_steps)
    ]


def noise(mean: float, n: int) -> list[float]:
    draw = random.Random(0)
    return [mean + draw.uniform(-0.1, 0.1) for _ in range(n)]


def test_a_rise_is_an_improvement() -> None:
    found = verdict("finished", "", rows(correct=[i / 20 for i in range(20)], score=[i / 20 for i in range(20)]))
    assert found.headline == "The policy improved: correct kernels rose from 2 % to 92 %."
    assert found.tone == "good"
    assert found.rose == (("correct kernels: 2 % → 92 %", 1), ("mean score: 0.025 → 0.925", 1))


def test_noise_is_no_change() -> None:
    found = verdict("finished", "", rows(correct=noise(0.5, 40), score=noise(0.5, 40)))
    assert (found.tone, found.rose, found.fell) == ("neutral", (), ())
    assert found.headline.startswith("No change beyond the noise: correct kernels ")


def test_a_collapse_names_the_step_and_the_learning_rate() -> None:
    curve = [0.2, 0.3, 0.4, 0.5, 0.0, 0.0, 0.0, 0.0]
    found = verdict("finished", "", rows(correct=curve, score=curve, rate=[0.01] * 8))
    assert (found.tone, found.headline) == (
        "bad",
        "The policy collapsed: correct kernels fell from 50 % at step 3 to 0 %.",
    )
    assert found.look[0].text.startswith("The fall began after step 3, at learning rate 0.01")
    assert found.look[0].link == "#/samples?set=train&step=3-4"


def test_a_run_without_updates_learnt_nothing() -> None:
    found = verdict("finished", "", rows(correct=[0.0] * 6, score=[0.1] * 6, skipped=[1.0] * 6))
    assert found.headline == "The policy learnt nothing: 6 of 6 steps had no update."
    assert found.look[0].text == "6 of 6 steps had no update, because no group had a learning signal"


def test_a_failed_run_states_its_error_and_a_running_one_is_not_judged_for_good() -> None:
    failed = verdict("failed", "the disk is full\nTraceback", rows(score=[0.1]))
    assert failed.headline == "The run failed: the disk is full. Until then: one step is finished, too few for a trend."
    assert verdict("running", "", []).headline == "So far: no step is finished."


def test_held_out_tasks_that_may_have_changed_by_chance_are_named_so() -> None:
    found = rows(correct=[i / 20 for i in range(20)], score=[i / 20 for i in range(20)])
    found[0]["eval_start/pass@1"] = 0.2
    found[-1] |= {"eval/pass@1": 0.3, "eval/num_tasks": 17}
    text = "solved held-out tasks (pass@1) went from 20 % to 30 %, which may be chance."
    assert verdict("finished", "", found).headline.endswith(text)
    found[-1] |= {"eval/pass@1": 0.7}
    assert verdict("finished", "", found).headline.endswith("(pass@1) rose from 20 % to 70 %.")


def test_a_single_jump_is_no_noise() -> None:
    trend = trend_of([(step, 0.1 if step < 3 else 0.9) for step in range(6)], share=True)
    assert trend is not None
    assert (trend.first, trend.last, trend.direction, trend.changed) == (0.1, 0.9, 1, True)


def test_too_few_values_have_no_trend() -> None:
    assert trend_of([(0, 0.1), (1, 0.9)], share=True) is None


def test_charts_are_ordered_by_their_change_and_those_of_the_machine_come_last() -> None:
    found = charts(
        rows(
            score=[1.0] * 8,
            correct=[0.1, 0.1, 0.2, 0.2, 0.3, 0.3, 0.3, 0.3],
            uniform_group_frac=[0.9, 0.8, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1],
            **{"time/total": [1.0, 9.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]},
        )
    )
    assert [(one["title"], one["changed"]) for one in found] == [
        ("Groups without a learning signal", True),
        ("Training tasks", True),
        ("Duration of a step", True),
        ("Score of a turn", False),
    ]


def test_a_plain_rejection_is_no_hack() -> None:
    (chart,) = charts([{"step": step, "outcome/rejected": 0.5, "outcome/hacked": 0.0} for step in range(5)])
    assert chart["curves"] == [("rejected", "outcome/rejected"), ("hacked", "outcome/hacked")]

"""Curriculum stages, sampling by difficulty, and both across a resume."""

from __future__ import annotations

import json
import random
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.errors import UsageError
from kernelrl_core.recipe.schema import (
    Advance,
    CurriculumSettings,
    CurriculumStage,
    Difficulty,
    TrainSettings,
)
from kernelrl_core.tasks.curriculum import TaskSchedule, signal_chance
from kernelrl_core.tasks.schedule import schedule
from kernelrl_core.types import (
    Episode,
    EvaluationSettings,
    Group,
    Outcome,
    SampleId,
    Task,
    TaskSettings,
    Turn,
)
from kernelrl_testing.training import make_recipe
from kernelrl_testing.values import make_turn

TASKS = [Task(f"t{level}.{i}", f"reference {level} {i}", level=level) for level in (1, 2, 3) for i in range(6)]
RECIPE = make_recipe(seed=5, train=TrainSettings(tasks_per_step=3, group_size=2, steps=12))


def course(curriculum: CurriculumSettings | None, tasks: Sequence[Task] = TASKS, **train: Any) -> TaskSchedule:
    recipe = attrs.evolve(RECIPE, curriculum=curriculum, train=attrs.evolve(RECIPE.train, **train))
    return TaskSchedule(tasks, recipe)


def group(task: Task, *outcomes: Outcome) -> Group:
    """A group with one single-turn episode per outcome."""

    def turn(attempt: int, outcome: Outcome) -> Turn:
        where = SampleId(0, 0, attempt, 0)
        return make_turn(outcome, id=where, task=task)

    return Group(task, tuple(Episode((turn(attempt, outcome),)) for attempt, outcome in enumerate(outcomes)))


RIGHT, WRONG, LOST = Outcome.CORRECT, Outcome.INCORRECT, Outcome.INFRA_ERROR


def test_without_a_curriculum_a_run_follows_the_schedule() -> None:
    plain = course(None)
    expected = schedule([task.id for task in TASKS], RECIPE.train, RECIPE.seed)
    assert [plain.batch(step) for step in range(12)] == [[TASKS[i] for i in batch] for batch in expected]
    assert (plain.learn(0, [], {}), plain.state()) == ({}, {})


STAGES = CurriculumSettings(
    (
        CurriculumStage(levels=(1,), until=Advance(above=0.5, over=2), trials=1, atol=1e-2, weights={"correct": 2.0}),
        CurriculumStage(levels=(1, 2), max_steps=3),
        CurriculumStage(),
    )
)


def test_stage_ends_when_the_mean_of_its_last_steps_is_high_enough() -> None:
    """Means over two steps: (0.2 + 0.6) / 2 = 0.4 is too low, (0.6 + 0.4) / 2 = 0.5 is enough.

    The second stage takes 3 steps. A single step is not a mean over two steps.
    """
    plan, stages = course(STAGES), []
    for step, rate in enumerate([0.2, 0.6, 0.4, 0.0, 0.0, 0.0, 0.9]):
        stages.append(plan.learn(step, [], {"kernel/correct_rate": rate})["curriculum/stage"])
    assert stages == [0, 0, 0, 1, 1, 1, 2]
    first_high = course(STAGES)
    first_high.learn(0, [], {"kernel/correct_rate": 1.0})
    assert first_high.learn(1, [], {"kernel/correct_rate": 0.0})["curriculum/stage"] == 0
    assert first_high.stage_line(2) == "curriculum: stage 2 of 3, 12 tasks of levels 1, 2"


def test_stage_sets_levels_and_task_settings() -> None:
    plan = course(STAGES)
    assert plan.stage_line(0) == "curriculum: stage 1 of 3, 6 tasks of level 1"
    assert plan.stage_line(1) is None
    batch = plan.batch(0)
    assert {task.level for task in batch} == {1}
    assert {task.settings.trials for task in batch} == {1}
    assert batch[0].settings == TaskSettings(1e-2, None, 1, {"correct": 2.0})
    assert {task.sha256 for task in batch} <= {task.sha256 for task in TASKS}


def test_one_pass_over_a_stage_includes_all_its_tasks() -> None:
    plan = course(CurriculumSettings((CurriculumStage(levels=(2,), max_steps=9), CurriculumStage())))
    seen = Counter(task.id for step in range(4) for task in plan.batch(step))
    assert seen == {f"t2.{i}": 2 for i in range(6)}


def test_steps_without_the_metric_do_not_count() -> None:
    speed = Advance(above=1.0, over=1, metric="multiturn/best_speedup_mean")
    plan = course(CurriculumSettings((CurriculumStage(levels=(1,), until=speed), CurriculumStage())))
    assert plan.learn(0, [], {})["curriculum/stage"] == 0
    plan.learn(1, [], {"multiturn/best_speedup_mean": 1.2})
    assert plan.learn(2, [], {})["curriculum/stage"] == 1


def test_stage_without_tasks_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="stage 2 has no tasks of its levels \\[4\\]; known: 1, 2, 3"):
        course(CurriculumSettings((CurriculumStage(max_steps=1), CurriculumStage(levels=(4,)))))


@pytest.mark.parametrize(
    ("right", "n", "expected"),
    [
        (0, 0, 1 / 3),  # Beta(1, 1): E[p^2] = 1/2 * 2/3 = 1/3, and as much for all wrong
        (0, 2, 3 / 10),  # Beta(1, 3): E[(1-p)^2] = 3/4 * 4/5 = 3/5, E[p^2] = 1/4 * 2/5 = 1/10
        (2, 2, 3 / 10),
        (2, 4, 3 / 7),  # Beta(3, 3): 3/6 * 4/7 = 2/7 twice
    ],
)
def test_signal_chance(right: int, n: int, expected: float) -> None:
    assert signal_chance(right, n, 2) == pytest.approx(expected)


def test_solved_groups_count_as_signal_with_solved_teaches() -> None:
    """1 - 1/10 for Beta(3, 1): only E[(1-p)^2] = 1/4 * 2/5 is subtracted."""
    assert signal_chance(2, 2, 2, solved_teaches=True) == pytest.approx(9 / 10)


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 16))
def test_signal_chance_is_positive_and_at_most_one(right: int, wrong: int, size: int) -> None:
    chance = signal_chance(right, right + wrong, size)
    assert 0 < chance < 1
    assert chance == pytest.approx(signal_chance(wrong, right + wrong, size))


def test_mixed_tasks_are_drawn_more_often_than_solved_or_unsolved_ones() -> None:
    """Group size 8, two groups each: 4 unsolved, 4 solved and 4 mixed tasks; the mixed ones are drawn most."""
    tasks = TASKS[:12]
    plan = course(CurriculumSettings(difficulty=Difficulty(sharpness=4.0)), tasks, group_size=8, steps=400)
    for step in range(2):
        for index, task in enumerate(tasks):
            right = (0, 8, 4)[index % 3]
            plan.learn(step, [group(task, *[RIGHT] * right, *[WRONG] * (8 - right))], {})
    drawn = Counter(int(task.id[1:].replace(".", "")) for step in range(2, 400) for task in plan.batch(step))
    share = [sum(n for i, n in drawn.items() if kind == _kind(i, tasks)) / sum(drawn.values()) for kind in range(3)]
    assert share[2] > 0.8
    assert min(share) > 0  # unsolved tasks are still drawn
    assert all(len({task.id for task in plan.batch(step)}) == 3 for step in range(2, 50))


def _kind(number: int, tasks: Sequence[Task]) -> int:
    return [task.id for task in tasks].index(f"t{number // 10}.{number % 10}") % 3


def test_difficulty_sampling_gives_fewer_uniform_groups_than_the_schedule() -> None:
    """36 tasks, of which two thirds are never or always solved; 60 steps of 6 tasks. With the schedule, two of three
    groups are uniform."""
    tasks = [Task(f"t{i}", f"reference {i}") for i in range(36)]
    rates = {task.id: (0.0, 1.0, 0.5)[index % 3] for index, task in enumerate(tasks)}

    def uniform_share(curriculum: CurriculumSettings | None) -> float:
        plan, chance, uniform = (
            course(curriculum, tasks, tasks_per_step=6, group_size=8, steps=60),
            random.Random(0),
            [],
        )
        for step in range(60):
            groups = [
                group(task, *(RIGHT if chance.random() < rates[task.id] else WRONG for _ in range(8)))
                for task in plan.batch(step)
            ]
            plan.learn(step, groups, {})
            uniform += [len({episode.turns[0].outcome for episode in one.episodes}) == 1 for one in groups]
        return statistics.fmean(uniform)

    assert uniform_share(None) > 0.6
    assert uniform_share(CurriculumSettings(difficulty=Difficulty())) < 0.4


def test_lost_episodes_and_old_groups_are_not_in_the_history() -> None:
    plan = course(CurriculumSettings(difficulty=Difficulty(groups=2)))
    for outcomes in ([RIGHT, RIGHT], [WRONG, LOST], [RIGHT, WRONG], [LOST, LOST]):
        plan.learn(0, [group(TASKS[0], *outcomes)], {})
    assert plan.state()["curriculum"]["history"] == {"t1.0": [[0, 1], [1, 2]]}


def test_tasks_repeat_in_a_batch_larger_than_the_pool() -> None:
    plan = course(CurriculumSettings(difficulty=Difficulty()), TASKS[:2])
    assert Counter(task.id for task in plan.batch(0)).most_common()[0][1] == 2


@given(st.lists(st.floats(0, 1), min_size=12, max_size=12), st.integers(0, 11))
def test_restored_curriculum_draws_the_same_tasks(rates: list[float], cut: int) -> None:
    both = attrs.evolve(STAGES, difficulty=Difficulty())

    def play(plan: TaskSchedule, steps: range) -> list[Any]:
        seen = []
        for step in steps:
            batch = plan.batch(step)
            groups = [group(task, RIGHT, WRONG if len(task.id) * step % 3 else RIGHT) for task in batch]
            seen.append((batch, plan.learn(step, groups, {"kernel/correct_rate": rates[step]})))
        return seen

    whole = play(course(both), range(12))
    first, second = course(both), course(both)
    begun = play(first, range(cut))
    second.restore(json.loads(json.dumps({"next_step": cut, **first.state()})))
    assert begun + play(second, range(cut, 12)) == whole


def test_task_settings_override_evaluation_settings() -> None:
    task = attrs.evolve(TASKS[0], settings=TaskSettings(atol=0.1, trials=2))
    found = EvaluationSettings(rtol=0.5).for_task(task)
    assert (found.atol, found.rtol, found.trials) == (0.1, 0.5, 2)
    assert EvaluationSettings().for_task(TASKS[0]) == EvaluationSettings()

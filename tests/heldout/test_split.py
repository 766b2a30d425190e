"""The metrics `eval/*` of a held-out evaluation."""

from __future__ import annotations

from kernelrl_core.heldout.split import numeric_results, split_metrics
from kernelrl_core.recipe.schema import EvalSettings
from kernelrl_core.types import Episode, Group, Outcome, Task
from kernelrl_testing.values import make_turn


def group(level: int | None, *outcomes: Outcome) -> Group:
    return Group(Task("t", "r", level=level), tuple(Episode((make_turn(outcome),)) for outcome in outcomes))


def test_a_split_of_several_levels_has_the_results_of_each() -> None:
    right, wrong = Outcome.CORRECT, Outcome.INCORRECT
    found = split_metrics([group(1, right, wrong), group(2, wrong, wrong), group(2, right, right)], EvalSettings())
    assert found["eval/pass@1"] == 0.5
    assert (found["eval/level_1/pass@1"], found["eval/level_2/pass@1"]) == (0.5, 0.5)
    assert (found["eval/level_1/num_tasks"], found["eval/level_2/num_tasks"]) == (1, 2)


def test_the_only_level_is_not_repeated() -> None:
    found = split_metrics([group(1, Outcome.CORRECT), group(None, Outcome.CORRECT)], EvalSettings())
    assert [name for name in found if "level" in name] == []


def test_only_numbers_are_metrics() -> None:
    report = {"policy": "x", "pass@1": 0.5, "pass@8": None, "levels": {"3": {"pass@1": 0.25, "reasons": {}}}}
    assert numeric_results(report) == {"eval/pass@1": 0.5, "eval/level_3/pass@1": 0.25}

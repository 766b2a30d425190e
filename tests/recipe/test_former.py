"""Keys and values of former versions: refused with their successor, and read in saved recipes."""

from __future__ import annotations

import pytest

from kernelrl_core.planning.load import RecipeError, recipe_from_mapping
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.former import since_former_versions

RECIPE = {
    "tasks": {"use": "starter"},
    "backend": {"use": "triton"},
    "policy": {"use": "scripted", "replies": [{"reply": "x"}]},
    "rewards": {"correct": {"use": "correctness"}},
}


def problems(**evaluation: object) -> list[str]:
    with pytest.raises(RecipeError) as raised:
        recipe_from_mapping({**RECIPE, "evaluation": evaluation}, registry=registry(), name="r")
    return [str(problem) for problem in raised.value.problems]


def test_a_value_that_is_gone_is_refused_with_its_successor() -> None:
    (problem,) = problems(timing_method="window")
    assert "evaluation.timing_method: 'window' is gone; its successor is 'replay'" in problem


def test_a_key_that_is_gone_is_refused_with_the_fix() -> None:
    (problem,) = problems(profile_kernels=True)
    assert "evaluation.profile_kernels: key 'profile_kernels' is gone; remove it" in problem


def test_a_key_that_is_gone_may_be_null() -> None:
    data = {**RECIPE, "evaluation": {"profile_kernels": None}}
    assert recipe_from_mapping(data, registry=registry(), name="r").recipe.evaluation.timing_method == "replay"


@pytest.mark.parametrize(
    ("saved", "overrides", "noticed"),
    [
        ({"evaluation": {"timing_method": "window"}}, ["evaluation.timing_method=replay"], 1),
        ({"evaluation": {"timing_method": "do_bench"}}, [], 0),
        ({"evaluation": {"profile_kernels": False}}, ["evaluation.profile_kernels=null"], 0),
        ({"evaluation": {"profile_kernels": True}}, ["evaluation.profile_kernels=null"], 1),
        ({"train": {"decontaminate": True}}, [], 0),
        ({"train": {"steps": 1}}, ["train.decontaminate=false"], 0),
        ({"evaluation": None, "train": [1]}, [], 0),
    ],
)
def test_a_saved_recipe_is_read_with_overrides_and_notices(
    saved: dict[str, object], overrides: list[str], noticed: int
) -> None:
    found = list(since_former_versions(saved))
    assert [override for override, _ in found] == overrides
    assert sum(bool(notice) for _, notice in found) == noticed

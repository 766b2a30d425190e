"""Recipes of runs that are continued: differences, and saved rules that no checker has."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.planning.load import RecipeError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.differences import differences
from kernelrl_core.recipe.structure import component_block
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training.continuation import choose_origin, run_recipe

SAVED = """
tasks:   {use: starter, practice: 0}
backend: {use: triton}
policy:  {use: scripted, choose: cycle, replies: [{reply: Hello.}]}
rewards: {correct: {use: correctness}}
"""


def test_the_saved_default_of_forbid_needs_no_checker(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SAVED + "forbid: [no_kernel, library_operators]\n")
    recipe = run_recipe(RunDir(tmp_path), registry()).recipe
    assert (recipe.checkers, recipe.forbid) == ({}, ())


def test_saved_rules_that_no_checker_has_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        SAVED + "checkers: {s: {use: source_rules}}\nforbid: [no_kernel, library_operators, fallback]\n"
    )
    assert run_recipe(RunDir(tmp_path), registry()).recipe.forbid == ("no_kernel", "fallback")


def test_rules_that_an_override_names_are_not_ignored(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SAVED)
    with pytest.raises(RecipeError, match="forbid: the recipe has no checker"):
        run_recipe(RunDir(tmp_path), registry(), ["forbid=[no_kernel]"])


def test_the_path_of_a_run_is_one_word_of_a_command() -> None:
    assert RunDir(Path("runs/first")).word == "runs/first"
    assert RunDir(Path("runs/my run")).word == "'runs/my run'"


def test_weights_of_a_model_from_scratch_are_refused_for_another_model_before_a_run_is_created(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SAVED.replace("{use: scripted", "{use: torch, warm_start: null, x: y"))
    with pytest.raises(
        UsageError, match="was trained with a model from scratch, and the recipe has some/model"
    ) as found:
        choose_origin(str(tmp_path), component_block("policy", {"use": "torch", "model": "some/model"}, registry()))
    assert found.value.fix == "set policy.model=null"


def test_differences_name_keys_and_values() -> None:
    old = {"seed": 0, "train": {"steps": 20, "kl": 0.0, "exact_resume": True}, "forbid": ["a"]}
    new = {"seed": 0, "train": {"steps": 30, "kl": 0.0, "exact_resume": None, "loss": "ppo"}, "forbid": []}
    assert differences(old, new) == ["train.steps (20 -> 30)", "train.loss (null -> ppo)", "forbid ([a] -> [])"]

"""Recipes of runs that are continued: differences, and meaning in the version that saved them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelrl_core.planning.load import RecipeError, load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training.continuation import differences, run_recipe

SAVED = """
tasks:   {use: starter, practice: 0}
backend: {use: triton}
policy:  {use: scripted, choose: cycle, replies: [{reply: Hello.}]}
rewards: {correct: {use: correctness}}
train:   {exact_resume: true}
"""


def test_saved_default_of_a_former_version_is_accepted_with_any_policy(tmp_path: Path) -> None:
    """`exact_resume` was true by default, also with a policy whose replies cannot be repeated."""
    (tmp_path / "recipe.yaml").write_text(SAVED)
    with pytest.raises(RecipeError, match=r"train\.exact_resume: replies of policy 'scripted'"):
        load_recipe(str(tmp_path / "recipe.yaml"), registry=registry())
    train = run_recipe(RunDir(tmp_path), registry()).recipe.train
    assert (train.exact_resume, train.decontaminate) == (None, False)


def test_rules_that_no_longer_exist_are_ignored_with_a_notice(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "recipe.yaml").write_text(
        SAVED.replace("exact_resume: true", "exact_resume: null")
        + "checkers: {s: {use: source_rules, skip: [fig_leaf, fallback], severity: {side_stream: note}}}\n"
        "forbid: [no_kernel, unusual_python]\n"
    )
    with pytest.raises(RecipeError, match="the rule 'fig_leaf' no longer exists: removed"):
        load_recipe(str(tmp_path / "recipe.yaml"), registry=registry())
    recipe = run_recipe(RunDir(tmp_path), registry()).recipe
    options = recipe.checkers["s"].options
    assert (recipe.forbid, options.skip, options.severity) == (("no_kernel",), ("fallback",), {})
    assert "fig_leaf (removed: the probe no_op decides (decoy_kernels)); side_stream (" in caplog.text


def test_the_former_default_of_forbid_needs_no_checker(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SAVED + "forbid: [no_kernel, library_compute]\n")
    assert run_recipe(RunDir(tmp_path), registry()).recipe.checkers == {}


def test_rules_of_the_former_default_that_no_checker_has_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(
        SAVED + "checkers: {s: {use: source_rules}}\nforbid: [no_kernel, library_operators, fallback]\n"
    )
    assert run_recipe(RunDir(tmp_path), registry()).recipe.forbid == ("no_kernel", "fallback")


def test_overrides_follow_those_of_former_versions(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(SAVED)
    assert run_recipe(RunDir(tmp_path), registry(), ["train.decontaminate=true"]).recipe.train.decontaminate


def test_differences_name_keys_and_values() -> None:
    old = {"seed": 0, "train": {"steps": 20, "kl": 0.0, "exact_resume": True}, "forbid": ["a"]}
    new = {"seed": 0, "train": {"steps": 30, "kl": 0.0, "exact_resume": None, "loss": "ppo"}, "forbid": []}
    assert differences(old, new) == ["train.steps (20 -> 30)", "train.loss (null -> ppo)", "forbid (['a'] -> [])"]

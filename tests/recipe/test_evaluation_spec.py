"""An evaluation specification is read without tasks, policy or rewards, and reports its own mistakes."""

from __future__ import annotations

from typing import Any

import pytest

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import DEFAULT_EVALUATION, read_evaluation_spec, spec_of
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.types import EvaluationSettings

BACKEND = {"backend": {"use": "triton"}}


def problems(plugins: Registry, data: dict[str, Any], *overrides: str) -> list[str]:
    with pytest.raises(RecipeError) as caught:
        read_evaluation_spec(data, overrides, registry=plugins)
    return [
        f"{problem.path}: {problem.message}; {problem.hint}".removesuffix("; ") for problem in caught.value.problems
    ]


def test_a_backend_is_enough(plugins: Registry) -> None:
    spec = read_evaluation_spec(BACKEND, registry=plugins)
    assert (spec.backend.use, spec.evaluator.use) == ("triton", "local")
    assert (spec.settings, spec.checkers) == (EvaluationSettings(), {})
    assert spec.forbid == ()


def test_the_rules_that_checkers_state_by_default_are_frozen_in_the_specification(plugins: Registry) -> None:
    assert read_evaluation_spec(BACKEND, ("checkers.c.use=rules",), registry=plugins).forbid == ("no_kernel",)


def test_no_rule_is_stated_if_the_recipe_lists_none(plugins: Registry) -> None:
    assert read_evaluation_spec(BACKEND, ("checkers.c.use=rules", "forbid=[]"), registry=plugins).forbid == ()


def test_without_a_recipe_the_default_components_serve() -> None:
    assert dict(DEFAULT_EVALUATION) == {
        "backend": {"use": "triton"},
        "evaluator": {"use": "local"},
        "checkers": {"source_rules": {"use": "source_rules"}, "evaluation_rules": {"use": "evaluation_rules"}},
    }


def test_overrides_apply_in_order(plugins: Registry) -> None:
    overrides = ("evaluation={trials: 3}", "evaluation.trials=7", "checkers.c.use=rules", "forbid=[no_kernel]")
    spec = read_evaluation_spec(BACKEND, overrides, registry=plugins)
    assert spec.settings.trials == 7
    assert {name: use.use for name, use in spec.checkers.items()} == {"c": "rules"}
    assert spec.forbid == ("no_kernel",)


def test_the_given_data_is_not_modified(plugins: Registry) -> None:
    data: dict[str, Any] = {"backend": {"use": "triton"}, "evaluation": {"trials": 3}}
    read_evaluation_spec(data, ["evaluation.trials=7"], registry=plugins)
    assert data == {"backend": {"use": "triton"}, "evaluation": {"trials": 3}}


def test_its_components_are_listed_with_their_kinds(plugins: Registry) -> None:
    spec = read_evaluation_spec(BACKEND, ["checkers.c.use=rules"], registry=plugins)
    uses = [(kind, use.use) for kind, use in spec.uses()]
    assert uses == [("backends", "triton"), ("evaluators", "local"), ("checkers", "rules")]


def test_spec_of_a_recipe_equals_the_spec_read_from_its_evaluation_keys(plugins: Registry) -> None:
    from kernelrl_core.planning.load import recipe_from_mapping

    rest = {"tasks": {"use": "files"}, "policy": {"use": "tiny"}, "rewards": {"r": {"use": "bounded"}}}
    part: dict[str, Any] = {**BACKEND, "evaluation": {"trials": 3}, "checkers": {"c": {"use": "rules"}}}
    recipe = recipe_from_mapping({**rest, **part}, registry=plugins, name="r").recipe
    assert spec_of(recipe) == read_evaluation_spec(part, registry=plugins)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({}, ["backend: required key is missing"]),
        ({"backend": {"use": "tritn"}}, ["backend.use: no backend 'tritn'; did you mean 'triton'?"]),
        ({**BACKEND, "evaluation": {"trails": 3}}, ["evaluation.trails: unknown key"]),
        ({**BACKEND, "evaluation": {"trials": 0}}, ["evaluation.trials: "]),
        ({**BACKEND, "policy": {"use": "tiny"}}, ["policy: has no effect here; known: backend, evaluator"]),
        ({**BACKEND, "train": {"steps": 1}}, ["train: has no effect here; known: backend, evaluator"]),
        ({**BACKEND, "evaluatoin": {}}, ["evaluatoin: unknown key 'evaluatoin'; did you mean 'evaluation'?"]),
        (
            {"backend": {"use": "tritn"}, "evaluation": {"trials": "x"}, "rewards": {}},
            ["backend.use: ", "evaluation.trials: ", "rewards: has no effect here"],
        ),
    ],
)
def test_all_mistakes_are_reported_together(plugins: Registry, data: dict[str, Any], found: list[str]) -> None:
    reported = problems(plugins, data)
    assert len(reported) == len(found)
    for line, expected in zip(sorted(reported), sorted(found), strict=True):
        assert line.startswith(expected)


def test_a_mistake_in_an_override_has_the_origin_command_line(plugins: Registry) -> None:
    with pytest.raises(RecipeError) as caught:
        read_evaluation_spec(BACKEND, ["evaluation.trails=3"], registry=plugins)
    (problem,) = caught.value.problems
    assert str(problem.origin) == "command line"
    assert "trials" in problem.hint


def test_a_rule_that_no_checker_has_is_rejected(plugins: Registry) -> None:
    reported = problems(plugins, BACKEND, "checkers.c.use=rules", "forbid=[no_kernal]")
    assert len(reported) == 1
    assert reported[0].startswith("forbid: ")
    assert "did you mean 'no_kernel'?" in reported[0]

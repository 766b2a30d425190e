"""Options as a recipe gives them."""

from __future__ import annotations

import pytest

from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.problems import RecipeError


@pytest.mark.parametrize("given", ["policy.warm_start.steps=3", "policy.warm_start=null", "policy.warm_start_steps=3"])
def test_the_warm_start_of_policy_torch_is_told_where_it_belongs_here(given: str) -> None:
    with pytest.raises(RecipeError, match=r"it belongs at 'policy\.local\.warm_start_steps'"):
        load_recipe("tinker_local", [given], registry=registry())


def test_ratios_of_sequences_are_refused_at_once_at_the_hosted_service_alone(monkeypatch) -> None:
    hosted = ["policy.server=null", "policy.model=m", "train.ratio=sequence"]
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    with pytest.raises(
        RecipeError, match=r"train\.ratio: policy 'tinker', as it is set, weights its losses by token al"
    ):
        load_recipe("tinker_local", hosted, registry=registry())
    load_recipe("tinker_local", [*hosted, "policy.base_url=http://127.0.0.1:8124"], registry=registry())
    load_recipe("tinker_local", ["train.ratio=sequence"], registry=registry())


def test_an_address_with_a_secret_in_a_recipe_is_refused_without_being_shown() -> None:
    with pytest.raises(RecipeError, match="base_url must hold no user, password or query") as told:
        load_recipe(
            "tinker_local",
            ["policy.server=null", "policy.model=m", "policy.base_url=http://u:geheim@h"],
            registry=registry(),
        )
    assert "geheim" not in str(told.value)

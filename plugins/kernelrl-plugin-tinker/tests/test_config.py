"""Options of the policy `tinker` in a recipe."""

from __future__ import annotations

import pytest

from kernelrl_core.api.components import RecipeError, registry
from kernelrl_core.api.episodes import load_recipe
from kernelrl_plugin_tinker.config import TinkerConfig


@pytest.mark.parametrize("given", ["policy.warm_start.steps=3", "policy.warm_start=null", "policy.warm_start_steps=3"])
def test_the_warm_start_key_of_policy_torch_is_refused_with_the_right_key(given: str) -> None:
    with pytest.raises(RecipeError, match=r"it belongs at 'policy\.local\.warm_start_steps'"):
        load_recipe("tinker_local", [given], registry=registry())


def test_sequence_ratios_are_refused_for_the_hosted_service_only(monkeypatch) -> None:
    hosted = ["policy.server=null", "policy.model=m", "train.ratio=sequence"]
    monkeypatch.delenv("TINKER_BASE_URL", raising=False)
    with pytest.raises(
        RecipeError, match=r"train\.ratio: policy 'tinker' with these options supports only ratio token"
    ):
        load_recipe("tinker_local", hosted, registry=registry())
    load_recipe("tinker_local", [*hosted, "policy.base_url=http://127.0.0.1:8124"], registry=registry())
    load_recipe("tinker_local", ["train.ratio=sequence"], registry=registry())


def test_a_url_with_a_secret_is_refused_without_being_shown() -> None:
    with pytest.raises(RecipeError, match="base_url must have no user, password or query") as failure:
        load_recipe(
            "tinker_local",
            ["policy.server=null", "policy.model=m", "policy.base_url=http://u:geheim@h"],
            registry=registry(),
        )
    assert "geheim" not in str(failure.value)


def test_a_context_above_that_of_the_server_s_model_is_refused() -> None:
    with pytest.raises(RecipeError, match=r"policy: context_tokens \(4096\) exceeds local\.context_tokens \(1024\)"):
        load_recipe("tinker_local", ["policy.context_tokens=4096"], registry=registry())


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        ({"model": "Qwen/Qwen3-8B"}, True),
        ({"model": "Qwen/Qwen3-8B", "renderer": "chat_template"}, False),
        ({"model": ".", "base_url": "http://127.0.0.1:8124"}, False),
        ({"model": ".", "renderer": "qwen3"}, True),
        ({"server": "local"}, False),
    ],
)
def test_only_a_model_given_by_name_or_a_renderer_needs_the_cookbook(options, needed) -> None:
    assert ("tinker_cookbook" in TinkerConfig(**options).requires().modules) is needed

"""The components of a recipe that is made in code without naming them."""

from __future__ import annotations

import pytest

from kernelrl_core.errors import LookupFailed, MissingPrerequisite
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.schema import Recipe, RewardUse, Use, recipe

KINDS = {"evaluator": "evaluators", "advantage": "advantages", "feedback": "feedback"}


def in_code() -> Recipe:
    return Recipe(Use("starter"), Use("triton"), Use("scripted"), {"correct": RewardUse("correctness")})


@pytest.mark.parametrize(("key", "kind"), KINDS.items())
def test_a_component_that_is_not_named_is_the_declared_one_with_its_options(key: str, kind: str) -> None:
    use = getattr(in_code(), key)
    assert use.use == registry().default(kind)
    assert type(use.options) is registry().config_class(kind, use.use)


def test_without_the_distribution_of_a_default_the_error_has_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(recipe, "registry", lambda: Registry(()))
    with pytest.raises(MissingPrerequisite) as raised:
        in_code()
    assert raised.value.fix.startswith("pip install kernelrl-plugin-")


def test_a_kind_without_a_default_is_named(plugins: Registry) -> None:
    with pytest.raises(LookupFailed, match="no reward is the default of its kind; declared: none"):
        plugins.declared("rewards")

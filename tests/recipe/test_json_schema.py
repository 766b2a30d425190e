"""The JSON schema accepts the recipes that the loader accepts."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from kernelrl_core.planning.load import bundled_recipes, load_recipe
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.json_schema import recipe_schema
from kernelrl_core.sources.yaml import parse


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return recipe_schema(registry())


@pytest.fixture(scope="module")
def validator(schema: dict[str, Any]) -> jsonschema.Draft202012Validator:
    """One validator for all tests; `jsonschema.validate` would check the whole schema in each call."""
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("name", sorted(bundled_recipes()))
def test_bundled_recipes_are_valid_as_written_and_as_resolved(
    validator: jsonschema.Draft202012Validator, name: str
) -> None:
    validator.validate(parse(bundled_recipes()[name].read_text()).data)
    validator.validate(load_recipe(name, registry=registry()).resolved)


@pytest.mark.parametrize(
    "wrong",
    [
        {"sede": 1},
        {"train": {"group_sise": 1}},
        {"train": {"group_size": 0}},
        {"returns": {"gamma": 1.5}},
        {"episode": {"stop": "corect"}},
        {"tasks": {"use": "nobody"}},
        {"policy": {"use": "torch", "widht": 3}},
        {"rewards": {"r": {"use": "correctness", "wieght": 1}}},
        {"seed": "1"},
    ],
)
def test_a_recipe_with_a_mistake_is_invalid(validator: jsonschema.Draft202012Validator, wrong: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)


def test_the_schema_is_valid_and_has_descriptions_of_keys(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    group_size = schema["properties"]["train"]["properties"]["group_size"]
    assert group_size == {"type": "integer", "minimum": 1, "description": "Episodes per task in a step.", "default": 8}


def test_objects_are_closed_at_every_depth(schema: dict[str, Any]) -> None:
    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node and node.get("type") == "object":
                assert node["additionalProperties"] is False
            for value in node.values():
                walk(value)
        elif isinstance(node, list):
            for value in node:
                walk(value)

    walk(schema)


def test_a_name_offered_twice_is_qualified_and_unreadable_options_are_skipped(plugins: Registry) -> None:
    rewards = recipe_schema(plugins)["properties"]["rewards"]["additionalProperties"]["anyOf"][0]["anyOf"]
    names = [branch["properties"]["use"]["const"] for branch in rewards]
    assert names == ["bounded", "boundless", "scoreless", "demo:twice", "other:twice"]

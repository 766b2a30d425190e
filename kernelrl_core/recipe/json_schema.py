"""JSON schema of recipes, generated from the classes that recipes are read into.

Objects are closed, so that editors underline a misspelt key. A block that selects a component has one branch per
installed component, with its options.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe import schema
from kernelrl_core.recipe.blocks import Block, blocks, core_keys
from kernelrl_core.recipe.field_docs import field_docs
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.recipe.structure import allows_none

__all__ = ["object_schema", "recipe_schema"]

_SCALARS: dict[Any, dict[str, Any]] = {
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    Path: {"type": "string"},
    type(None): {"type": "null"},
    Any: {},
    schema.PositiveInt: {"type": "integer", "minimum": 1},
    schema.NonNegativeInt: {"type": "integer", "minimum": 0},
    schema.PositiveFloat: {"type": "number", "exclusiveMinimum": 0},
    schema.NonNegativeFloat: {"type": "number", "minimum": 0},
    schema.Fraction: {"type": "number", "minimum": 0, "maximum": 1},
}


def recipe_schema(registry: Registry) -> dict[str, Any]:
    """JSON Schema (2020-12) of recipes, with a branch for every component of the registry."""
    described = object_schema(Recipe)
    properties = described["properties"]
    properties["extends"] = {
        "description": "Base recipes: names, or paths relative to this file. Later ones override earlier ones.",
        "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
    }
    hints = typing.get_type_hints(Recipe)
    for key, block in blocks().items():
        choice = _choice(registry, block)
        if allows_none(hints[key]):
            choice = {"anyOf": [choice, {"type": "null"}]}
        if block.named:
            choice = {"type": "object", "additionalProperties": {"anyOf": [choice, {"type": "null"}]}}
        properties[key] = {**choice, "description": properties[key].get("description", "")}
    # A base recipe may provide the required keys.
    described["required"] = []
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kernelrl recipe", **described}


def _choice(registry: Registry, block: Block) -> dict[str, Any]:
    hints = typing.get_type_hints(block.cls)
    docs = field_docs(block.cls)
    core = {key: {**_type(hints[key]), "description": docs.get(key, "")} for key in core_keys(block.cls)}
    branches = []
    for component in registry.components(block.kind):
        label = registry.label(block.kind, component)
        try:
            options = object_schema(registry.config_class(block.kind, label))
        except KernelRLError:
            options = {"properties": {}, "required": []}
        branches.append(
            {
                "type": "object",
                "description": component.summary,
                "properties": {"use": {"const": label}, **core, **options["properties"]},
                "required": [*([] if block.optional else ["use"])],
                "additionalProperties": False,
            }
        )
    return {"anyOf": branches} if branches else {"type": "object"}


def object_schema(cls: type[Any]) -> dict[str, Any]:
    """JSON Schema (2020-12) of an attrs class as `to_json` writes it: a closed object, with the texts below its fields
    as descriptions."""
    hints, docs = typing.get_type_hints(cls), field_docs(cls)
    properties: dict[str, Any] = {}
    for field in attrs.fields(cls):
        if not field.init:
            continue
        properties[field.name] = {**_type(hints[field.name])}
        if field.name in docs:
            properties[field.name]["description"] = docs[field.name]
        if isinstance(field.default, bool | int | float | str):
            properties[field.name]["default"] = field.default
    return {
        "type": "object",
        "description": inspect.cleandoc(cls.__doc__ or ""),
        "properties": properties,
        "required": [field.name for field in attrs.fields(cls) if field.init and field.default is attrs.NOTHING],
        "additionalProperties": False,
    }


def _type(hint: Any) -> dict[str, Any]:
    if hint in _SCALARS:
        return dict(_SCALARS[hint])
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type(argument) for argument in arguments]}
    if origin is tuple and len(set(arguments)) == 1:
        # Some readers of schemas do not know `prefixItems`.
        count = len(arguments)
        return {"type": "array", "items": _type(arguments[0]), "minItems": count, "maxItems": count}
    if origin is tuple and arguments[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [_type(item) for item in arguments], "items": False}
    if origin in (tuple, list):
        return {"type": "array", "items": _type(arguments[0])}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _type(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    return object_schema(hint) if isinstance(hint, type) and attrs.has(hint) else {}

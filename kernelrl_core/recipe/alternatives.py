"""Keys whose value is one of several mappings, such as `history.keep: {last: 3}` or `{best: 2}`."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any, Union

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.schema import Recipe

__all__ = ["names_another_alternative"]


def names_another_alternative(
    path: tuple[str, ...], component: str, inherited: Mapping[Any, Any], value: Mapping[Any, Any]
) -> bool:
    """Whether a mapping belongs to another alternative of its key than the inherited one, and so replaces it.

    Args:
        path: of the key.
        component: name of the component whose block contains the key; empty outside of a block.
    """
    alternatives = [_field_names(member) for member in _members(_type_at(path, component)) if attrs.has(member)]
    if len(alternatives) < 2:
        return False
    own_keys = {str(key) for key in value}
    all_keys = own_keys | {str(key) for key in inherited}
    is_known = any(own_keys <= names for names in alternatives)
    fits_both = any(all_keys <= names for names in alternatives)
    return is_known and not fits_both


def _type_at(path: tuple[str, ...], component: str) -> Any:
    """The type of a key of the recipe, or of an option of a component; None if there is no such key."""
    block = blocks().get(path[0])
    if block is None:
        return _nested(Recipe, path)
    below = path[2:] if block.named else path[1:]
    if not below or not component:
        return None
    try:
        config = registry().config_class(block.kind, component)
    except (KernelRLError, ImportError, AttributeError):
        return None  # reported when the block is read
    return _nested(config, below)


def _nested(cls: Any, path: tuple[str, ...]) -> Any:
    """The type at a path of nested attrs classes; None if there is none."""
    wanted = cls
    for key in path:
        owner = next((one for one in _members(wanted) if attrs.has(one) and key in _field_names(one)), None)
        if owner is None:
            return None
        wanted = typing.get_type_hints(owner)[key]
    return wanted


def _field_names(cls: Any) -> set[str]:
    return {field.name for field in attrs.fields(cls)}


def _members(wanted: Any) -> tuple[Any, ...]:
    if typing.get_origin(wanted) in (Union, types.UnionType):
        return typing.get_args(wanted)
    return (wanted,)

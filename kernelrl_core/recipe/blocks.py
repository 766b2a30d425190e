"""Which parts of a recipe choose a component, read off the schema."""

from __future__ import annotations

import functools
import typing
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.recipe.schema import Recipe, Use

__all__ = ["Block", "block_at", "blocks", "core_keys"]

_KINDS = {
    "tasks": "tasks",
    "backend": "backends",
    "policy": "policies",
    "rewards": "rewards",
    "evaluator": "evaluators",
    "advantage": "advantages",
    "checkers": "checkers",
    "feedback": "feedback",
    "retriever": "retrievers",
    "loggers": "loggers",
}
"""Key of a recipe -> kind of the component it chooses."""


@attrs.frozen
class Block:
    """A key of the recipe that chooses components."""

    kind: str
    """Kind of component."""
    cls: type[Use]
    """Class the block becomes."""
    named: bool
    """Whether the key holds several blocks by names of their own."""
    default: str = ""
    """Component that is meant where `use` is left out."""


@functools.cache
def blocks() -> Mapping[str, Block]:
    """Key of the recipe -> what it chooses."""
    hints = typing.get_type_hints(Recipe)
    found = {}
    for field in attrs.fields(Recipe):
        if field.name not in _KINDS:
            continue
        hint = hints[field.name]
        named = typing.get_origin(hint) is dict
        inner = typing.get_args(hint)[1] if named else hint
        cls = next(c for c in (inner, *typing.get_args(inner)) if isinstance(c, type) and issubclass(c, Use))
        default = field.default.use if isinstance(field.default, Use) else ""
        found[field.name] = Block(_KINDS[field.name], cls, named, default)
    return found


def block_at(path: tuple[str, ...]) -> Block | None:
    """The block whose mapping (with `use` and options) stands at `path`, if one does."""
    block = blocks().get(path[0]) if path else None
    return block if block is not None and len(path) == (2 if block.named else 1) else None


def core_keys(cls: type[Use]) -> Mapping[str, Any]:
    """Keys of a block that are core's and no component's, beside `use`: name -> attrs attribute."""
    return {field.name: field for field in attrs.fields(cls) if field.name not in ("use", "options", "raw")}

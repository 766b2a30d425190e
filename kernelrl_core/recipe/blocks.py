"""The recipe keys that select components, derived from the schema."""

from __future__ import annotations

import functools
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.schema import Recipe, Use

__all__ = ["Block", "block_at", "blocks", "component_name", "core_keys", "uses"]

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
"""Recipe key -> kind of the component that it selects."""


@attrs.frozen
class Block:
    """A recipe key that selects one or more components."""

    kind: str
    """Kind of component."""
    cls: type[Use]
    """Class of the typed block."""
    named: bool
    """Whether the key maps names to blocks, such as `rewards`, or is one block."""
    optional: bool = False
    """Whether `use` may be missing: the component is then the declared default of its kind."""


@functools.cache
def blocks() -> Mapping[str, Block]:
    """Recipe key -> block, for every key that selects components."""
    hints = typing.get_type_hints(Recipe)
    found = {}
    for field in attrs.fields(Recipe):
        if field.name not in _KINDS:
            continue
        hint = hints[field.name]
        named = typing.get_origin(hint) is dict
        inner = typing.get_args(hint)[1] if named else hint
        cls = next(c for c in (inner, *typing.get_args(inner)) if isinstance(c, type) and issubclass(c, Use))
        found[field.name] = Block(_KINDS[field.name], cls, named, optional="declared" in field.metadata)
    return found


def component_name(block: Block, entry: Mapping[Any, Any], registry: Registry) -> Any:
    """The component that an entry of a block names, as written, or the default of its kind; None or empty: neither."""
    if "use" in entry:
        return entry["use"]
    return registry.default(block.kind) if block.optional else ""


def block_at(path: tuple[str, ...]) -> Block | None:
    """The block whose mapping (with `use` and options) is at `path`; None if `path` is not that of a block."""
    block = blocks().get(path[0]) if path else None
    return block if block is not None and len(path) == (2 if block.named else 1) else None


def uses(parts: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Use]]:
    """Path and typed block of every component among typed recipe keys."""
    for key, block in blocks().items():
        value = parts.get(key)
        if value is not None:
            yield from (((key, name), use) for name, use in value.items()) if block.named else [((key,), value)]


def core_keys(cls: type[Use]) -> Mapping[str, Any]:
    """Keys of a block that belong to the core, not to the component, except `use`: name -> attrs attribute."""
    return {field.name: field for field in attrs.fields(cls) if field.name not in ("use", "options", "raw")}

"""The page of recipe keys, from the schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import attrs

from docpages.markdown import linked, note, table, wrapped
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.blocks import Block, blocks, core_keys
from kernelrl_core.recipe.field_docs import FieldDescription, describe_fields
from kernelrl_core.recipe.schema import Recipe


def recipe_keys_page() -> str:
    """The page with one section per key at the top of a recipe."""
    keys = describe_fields(Recipe)
    parts = [
        "# Recipe keys",
        note("kernelrl_core/recipe/schema"),
        wrapped(
            "Every key of a recipe. [Recipes](../recipes.md) explains merging and overrides; `kernelrl explain KEY` "
            "prints one key with an example, `kernelrl schema` all of them for editors. A key that selects a component "
            "also takes the options of that component, listed in [components](components.md)."
        ),
        table(("key", "meaning"), ((f"[`{key.name}`](#{key.name})", linked(key.help)) for key in keys)),
        wrapped("`extends`, beside these, names base recipes ([merging](../recipes.md#files-merging-overrides))."),
    ]
    for key in keys:
        parts += [f"## {key.name}", linked(key.help)]
        block = blocks().get(key.name)
        parts += _component_block(key, block) if block is not None else _plain(key)
    return "\n\n".join(part for part in parts if part) + "\n"


def options_table(fields: Iterable[FieldDescription], prefix: str = "", name: str = "option") -> str:
    """A table of keys or options, nested ones under their dotted names; empty if there are none."""
    rows = [(f"`{path}`", _type(one), _default(one), linked(one.help)) for path, one in _flat(fields, prefix)]
    return table((name, "type", "default", "meaning"), rows) if rows else ""


def _flat(fields: Iterable[FieldDescription], prefix: str) -> Iterator[tuple[str, FieldDescription]]:
    for field in fields:
        yield prefix + field.name, field
        yield from _flat(field.fields, f"{prefix}{field.name}.")


def _type(field: FieldDescription) -> str:
    """Accepted values; those of nested keys are rows of their own."""
    return re.sub(r"a mapping with (?:'\w+'(?:, )?)+", "a mapping", field.type) if field.fields else field.type


def _default(field: FieldDescription) -> str:
    if field.default == "required":
        return "required"
    return "below" if field.fields and field.default.startswith("{") else f"`{field.default}`"


def _plain(key: FieldDescription) -> Iterator[str]:
    if key.fields:
        yield "Null by default." if key.default == "null" else ""
        yield options_table(key.fields, f"{key.name}.", "key")
    else:
        default = "Required." if key.default == "required" else f"Default: `{key.default}`."
        yield f"Type: {key.type}. {default}"


def _component_block(key: FieldDescription, block: Block) -> Iterator[str]:
    kind = KINDS_BY_NAME[block.kind].singular
    path = f"{key.name}.NAME." if block.named else f"{key.name}."
    each = "Maps names of your choice to components" if block.named else "Selects a component"
    yield f"{each} of the kind [{kind}](components.md#{block.kind})."
    core = {"use", *core_keys(block.cls)}
    keys = [one for one in describe_fields(block.cls) if one.name in core]
    if block.optional:
        default = registry().default(block.kind)
        keys = [attrs.evolve(one, default=default) if one.name == "use" else one for one in keys]
    yield options_table(keys, path, "key")

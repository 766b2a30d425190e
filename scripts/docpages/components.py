"""The page of components, from the plugins that declare them and the classes of their options."""

from __future__ import annotations

from collections.abc import Iterator

from docpages.kinds import KINDS
from docpages.markdown import linked, names, note, table, wrapped
from docpages.recipe_keys import options_table
from docpages.registry import bundled
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.blocks import blocks
from kernelrl_core.recipe.field_docs import describe_fields


def components_page() -> str:
    """The page with one section per component of the bundled plugins."""
    parts = [
        "# Components",
        note("the declarations of the bundled plugins"),
        wrapped(
            "Every component of the bundled plugins with its options. A recipe selects one with `use` and writes the "
            "options beside it ([recipes](../recipes.md)). `kernelrl plugins list` lists those that are installed, "
            "`kernelrl plugins show NAME` prints the options of one plugin. "
            "[Commands](commands.md) of plugins are on the page of commands."
        ),
        table(("kind", "components"), ((f"[{kind}](#{kind})", ", ".join(_links(kind))) for kind in KINDS)),
    ]
    for kind in KINDS:
        parts += [f"## {kind}", _selected_by(kind)]
        for distribution, name, component in bundled(kind):
            parts += _component(kind, distribution, name, component)
    return "\n\n".join(part for part in parts if part) + "\n"


def _heading(kind: str, name: str) -> str:
    return f"{KINDS_BY_NAME[kind].singular} {name}"


def _links(kind: str) -> Iterator[str]:
    for _, name, _ in bundled(kind):
        yield f"[`{name}`](#{_heading(kind, name).replace(' ', '-')})"


def _selected_by(kind: str) -> str:
    ((key, block),) = ((key, block) for key, block in blocks().items() if block.kind == kind)
    path = f"{key}.NAME" if block.named else key
    return f"Selected by [`{path}.use`](recipe_keys.md#{key}). Write your own: [{kind}](../plugins/{kind}.md)."


def _component(kind: str, distribution: str, name: str, component: Component) -> Iterator[str]:
    yield f"### {_heading(kind, name)}"
    of = f"[`{distribution}`](../../plugins/{distribution}/README.md)" if distribution != "kernelrl" else "the core"
    needs = "; ".join(_needs(component.requires))
    yield wrapped(
        f"{linked(_sentence(component.summary)).rstrip('.')}. From {of}.{f' Needs {needs}.' if needs else ''}"
    )
    yield options_table(describe_fields(registry().config_class(kind, name))) or "No options."


def _needs(requires: Requires) -> Iterator[str]:
    for what, found in (
        ("the module", requires.modules),
        ("the program", requires.executables),
        ("the variable", requires.environment),
        ("the file", requires.files),
    ):
        if found:
            yield f"{what if len(found) == 1 else what + 's'} {names(found)}"
    if requires.gpu:
        yield {"any": "a GPU", "nvidia": "an NVIDIA GPU", "amd": "an AMD GPU"}[requires.gpu]


def _sentence(summary: str) -> str:
    return summary[:1].upper() + summary[1:]

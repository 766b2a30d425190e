"""The pages of `docs/plugins`: each kind of plugin, declarations, values, test kit."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import attrs

from docpages.docstrings import (
    alias_source,
    attributes,
    class_entry,
    entry,
    fields,
    markdown,
    methods,
    origin,
    own_doc,
    texts_below,
)
from docpages.markdown import linked, note, wrapped
from kernelrl_core.interfaces.component import Component
from kernelrl_core.interfaces.config import ComponentConfig, MachineFact
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_testing.contracts import CONTRACTS, ComponentContract
from kernelrl_testing.new_package import read_sample

KINDS = tuple(kind for kind in KINDS_BY_NAME if kind != "commands")
"""Kinds whose values and options are documented."""
DECLARATIONS = (Component, Requires, ComponentConfig, MachineFact)
"""Classes with which a plugin declares its components."""


def kind_page(kind: str) -> str:
    """The page of a kind."""
    known = KINDS_BY_NAME[kind]
    module, sample = importlib.import_module(known.module), read_sample(kind)
    title, _, prose = (inspect.getdoc(module) or "").partition(": ")
    prose, *_ = prose.rsplit("\n\n", maxsplit=1)  # without the sentence on the sample, which follows below
    own = [getattr(module, name) for name in module.__all__]
    classes = [value for value in own if inspect.isclass(value) and value is not ComponentConfig]
    options = next((cls for cls in classes if issubclass(cls, ComponentConfig)), None)
    implementation = "`click.Command`" if kind == "commands" else "function"
    parts = [
        f"# {title}",
        note(known.module),
        linked(prose[0].upper() + prose[1:].strip()),
        "| | |\n|---|---|\n"
        f"| hook | `kernelrl_{kind}` |\n"
        f"| implementation | {f'class derived from `{known.base_name}`' if known.base_name else implementation} |\n"
        f"| options | {f'class derived from `{options.__name__}`' if options else 'those of the command line'} |",
    ]
    if options:
        link = f"[`{known.api}`](../reference/python.md#{known.api.replace('.', '')})"
        parts.append(wrapped(f"Import from {link}. Fields of values that are not on this page: [values](values.md)."))
    command = f"kernelrl plugins new {kind} {sample.name.replace('_', '-')}"
    parts += [
        "## Sample plugin",
        wrapped(
            f"`{command}` writes this plugin, with `pyproject.toml`, `README.md` and a licence "
            "([your first plugin](../plugins.md#your-first-plugin))."
        ),
        *(f"`{path}`:\n\n```python\n{text}```" for path, text in sample.files.items()),
    ]
    if sample.recipe:
        parts += ["In a recipe:", f"```yaml\n{sample.recipe}```"]
    if contract := CONTRACTS.get(kind):
        parts += [
            "## Test",
            wrapped(
                f"`{contract.__name__}` contains the tests that every component of this kind must pass. The tests of a "
                "plugin derive a class from it."
            ),
            *attributes(contract, ComponentContract),
        ]
    for alias in (name for name, value in zip(module.__all__, own, strict=True) if not inspect.isclass(value)):
        parts += [f"## {alias}", f"`{alias_source(module, alias)}`", linked(texts_below(module)[alias])]
    for cls in sorted(classes, key=lambda cls: (issubclass(cls, ComponentConfig), attrs.has(cls))):
        parts += [f"## {cls.__name__}", linked(markdown(own_doc(cls)))]
        parts += list(fields(cls) if attrs.has(cls) else attributes(cls))
        parts += list(methods(cls))
        if cls is options:
            parts.append(
                "Every options class also has the methods of [`ComponentConfig`](declaring.md#componentconfig)."
            )
    return "\n\n".join(parts) + "\n"


def values() -> dict[str, type[Any]]:
    """Name -> class of the values that the API exports."""
    return {name: cls for name, (cls, _) in _exported_values().items()}


def _exported_values() -> dict[str, tuple[type[Any], str]]:
    """Name -> class, and the first module of the API that exports it."""
    seen: dict[str, tuple[type[Any], str]] = {}
    for kind in KINDS:
        public = importlib.import_module(KINDS_BY_NAME[kind].api)
        for name in public.__all__:
            value = getattr(public, name)
            if inspect.isclass(value) and value.__module__.startswith("kernelrl_core.types."):
                seen.setdefault(name, (value, public.__name__))
    return seen


def values_page() -> str:
    """The page with the fields of `values`."""
    parts = [
        "# Values",
        note("kernelrl_core.types"),
        wrapped(
            "Fields of the values that plugins get and return. All classes are frozen. `type = value` is the type of a "
            "field and its default."
        ),
    ]
    for name, (cls, module) in sorted(_exported_values().items()):
        heading, *entry = class_entry(cls, "##")
        parts += [heading, f"`from {module} import {name}`", *entry]
    return "\n\n".join(parts) + "\n"


def declaring_page() -> str:
    """The page of the classes with which a plugin declares its components and their options."""
    parts = [
        "# Declaring components",
        note("kernelrl_core.interfaces"),
        wrapped(
            "A hook returns a list of `Component`. Options are the fields of a class that derives from "
            "`ComponentConfig` ([rules](../plugin_rules.md#options)). `type = value` is the type of a field and its "
            "default."
        ),
    ]
    for cls in DECLARATIONS:
        parts += class_entry(cls, "##")
    return "\n\n".join(parts) + "\n"


def kit_modules() -> Iterator[Any]:
    """The public modules of the test kit."""
    for name in ("contracts", "fakes", "fixtures", "kernels", "training", "values", "waiting"):
        yield importlib.import_module(f"kernelrl_testing.{name}")


def testing_page() -> str:
    """The page with the public names of the test kit, except the contract classes of the kinds."""
    parts = [
        "# Test kit",
        note("kernelrl_testing"),
        wrapped(
            "Builders, fakes and contract tests for the tests of a plugin: `pip install 'kernelrl[testing]'`. The page "
            "of a kind documents its contract class; `kernelrl plugins check` runs the contracts without pytest "
            "([check a plugin](../plugins.md#check-a-plugin))."
        ),
    ]
    elsewhere = [cls.__name__ for cls in (*CONTRACTS.values(), ComponentContract)]
    for module in kit_modules():
        parts += [f"## {module.__name__}", linked(markdown(inspect.cleandoc(module.__doc__ or "")))]
        for name in module.__all__:
            if name not in elsewhere:
                parts += entry(name, getattr(module, name), origin(module, name))
    return "\n\n".join(parts) + "\n"

"""The page of the public Python API: every module, its names, and the documentation of those that no other page has."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from docpages.docstrings import entry, markdown, origin
from docpages.kinds import DECLARATIONS, KINDS, kit_modules, values
from docpages.markdown import anchors, linked, note, wrapped
from kernelrl_core import api
from kernelrl_core.plugins.kinds import KINDS_BY_NAME


def python_page(pages: Mapping[str, str]) -> str:
    """The page.

    Args:
        pages: name in `docs/plugins` -> text of the pages that document other names.
    """
    elsewhere = dict(_elsewhere(pages))
    sections = []
    seen: set[str] = set()
    for module in api_modules():
        own = []
        for name in module.__all__:
            if _key(module, name) not in elsewhere and name not in seen:
                seen.add(name)
                own += entry(name, getattr(module, name), origin(module, name))
        doc = linked(markdown(inspect.cleandoc(module.__doc__ or "")))
        sections.append((module, f"## {module.__name__}\n\n{doc}", own))
    # Of a class and a function that differ only in case, the second one has a number.
    here = {name: f"#{anchor}" for name, anchor in anchors("\n\n".join("\n".join([s, *own]) for _, s, own in sections))}
    parts = [
        "# Python",
        note("kernelrl_core.api and kernelrl_testing"),
        wrapped(
            "Plugins import `kernelrl_core.api`, their tests also `kernelrl_testing`. Every other module of "
            "`kernelrl_core` is private and may move ([stability](../stability.md)). A name that several modules "
            "export is the same object in all of them, and is documented once."
        ),
    ]
    for module, head, own in sections:
        links = [f"[`{name}`]({elsewhere.get(_key(module, name)) or here[name]})" for name in module.__all__]
        parts += [head, wrapped(", ".join(links)) if links else "", *own]
    for module in kit_modules():
        links = [f"[`{name}`]({elsewhere[_key(module, name)]})" for name in module.__all__]
        parts += [f"## {module.__name__}", wrapped(", ".join(links))]
    return "\n\n".join(part for part in parts if part) + "\n"


def api_modules() -> Iterator[Any]:
    """The modules of the public API."""
    yield api
    for path in sorted(Path(api.__path__[0]).glob("[a-z]*.py")):
        yield importlib.import_module(f"kernelrl_core.api.{path.stem}")


def _key(module: Any, name: str) -> tuple[str, str]:
    """Module that defines a name, and the name."""
    return origin(module, name), name


def _elsewhere(pages: Mapping[str, str]) -> Iterator[tuple[tuple[str, str], str]]:
    """Module and name -> link, of the names that other pages document."""
    places = {page: dict(anchors(text)) for page, text in pages.items()}
    for cls in DECLARATIONS:
        yield (cls.__module__, cls.__name__), f"../plugins/declaring.md#{places['declaring'][cls.__name__]}"
    for name, cls in values().items():
        yield (cls.__module__, name), f"../plugins/values.md#{places['values'][name]}"
    for kind in KINDS:
        known = KINDS_BY_NAME[kind]
        for name in importlib.import_module(known.module).__all__:
            yield (known.module, name), f"../plugins/{kind}.md#{places[kind][name]}"
    for module in kit_modules():
        for name in module.__all__:
            page = next((page for page in ("testing", *KINDS) if name in places[page]), None)
            anchor = f"#{places[page][name]}" if page else ""
            yield _key(module, name), f"../plugins/{page or 'testing'}.md{anchor}"

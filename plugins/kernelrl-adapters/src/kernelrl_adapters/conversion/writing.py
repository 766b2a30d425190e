"""The text of a converted recipe: a header, the values, and a comment for each key without a place."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelrl_adapters.conversion.convert import Conversion
from kernelrl_core.api.recipes import dump

__all__ = ["recipe_text"]


def recipe_text(done: Conversion, name: str) -> str:
    """A recipe as YAML.

    Args:
        name: file of the recipe, for the commands of the header.
    """
    given = done.configuration
    file = _printable(shlex.quote(name))
    run = Path(given["log_path"] or "").name
    as_named = f" --name {_printable(shlex.quote(run))}" if run and run[0] not in ".-" else ""
    header = f"""\
# {_printable(Path(name).stem)}: converted from {_printable(given.path.name)}, a configuration of {given.system}.
#
#   kernelrl validate {file}
#   kernelrl run {file} --dry-run
#   kernelrl run {file}{as_named}
#
# Values that were not set are the defaults of {given.system}. docs/migration.md has commands, metrics and files.
"""
    blocks = [_block(key, value) for key, value in done.recipe.items()]
    sections = {"Keys with another meaning here": done.notes, "Keys without a place": done.homeless}
    return "\n".join([header, *blocks, *(_section(done, head, found) for head, found in sections.items() if found)])


def _block(key: str, value: Any) -> str:
    """A key of the recipe: on one line if that is short enough, else one line for each key below it."""
    text = dump({key: value}, flat=True)
    wrapped = text.startswith(f"{key}: {{") and text.count("\n") > 1
    return dump({key: value}) if wrapped or not isinstance(value, Mapping) else text


def _section(done: Conversion, head: str, reasons: Mapping[str, str]) -> str:
    given = done.configuration
    values = {**given.values, **given.unknown}
    lines = [f"# {head}:"]
    for key, reason in reasons.items():
        lines.append(f"#   {_printable(given.spelt.get(key, key))}: {_printable(values[key])}")
        lines.append(f"#     {_printable(reason)}")
    return "\n".join(lines) + "\n"


def _printable(value: Any) -> str:
    """A value on one line, in characters that YAML permits in a comment."""
    text = value if isinstance(value, str) and value.isprintable() else json.dumps(value, default=str)
    return text.encode("ascii", "backslashreplace").decode().replace("\x7f", "\\x7f")

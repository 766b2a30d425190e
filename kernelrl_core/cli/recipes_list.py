"""`kernelrl recipes list`: list all recipes."""

from __future__ import annotations

from pathlib import Path

import click

from kernelrl_core.cli.output import print_json, table
from kernelrl_core.planning.duration import header_entries
from kernelrl_core.planning.load import recipes


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """List the recipes of ./recipes and the bundled ones, with their needs and their duration or amounts.

    A recipe of ./recipes hides a bundled one of its name.

    \b
    Examples:
      kernelrl recipes list
      kernelrl recipes list --json
    """
    rows = [
        {"name": name, "summary": _summary(path), "path": str(path), "needs": header["needs"], "costs": header["costs"]}
        for name, path in sorted(recipes().items())
        if (header := header_entries(path))
    ]
    if as_json:
        print_json({"recipes": rows})
        return
    for row, line in zip(rows, table([(row["name"], row["summary"]) for row in rows]), strict=True):
        click.echo(line)
        for key in ("needs", "costs"):
            if row[key]:
                click.echo(f"    {key}: {row[key]}")


def _summary(path: Path) -> str:
    """The first sentence of the header comment, without the recipe's name."""
    with path.open(encoding="utf-8", errors="replace") as file:
        first = file.readline().strip()
    text = first.lstrip("# ") if first.startswith("#") else ""
    return text.removeprefix(f"{path.stem}:").strip()

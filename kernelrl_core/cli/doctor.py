"""`kernelrl doctor`: check the prerequisites of this machine, and show the fix of each missing one."""

from __future__ import annotations

from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.errors import more
from kernelrl_core.planning.prerequisite_checks import machine_checks, recipe_checks
from kernelrl_core.plugins.registry import registry


@click.command("doctor")
@click.option("--recipe", "-r", help="Check only the prerequisites of this recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def command(context: click.Context, recipe: str | None, as_json: bool) -> None:
    """Check the prerequisites of this machine and print a fix for each missing one. Never prints a secret.

    Exit code 3 if --recipe is given and one of its prerequisites is missing, else 0.

    \b
    Examples:
      kernelrl doctor
      kernelrl doctor --recipe quickstart
    """
    rows = recipe_checks(recipe, registry()) if recipe else machine_checks(registry())
    if as_json:
        print_json({"checks": rows})
    else:
        print_lines(_lines(rows))
        if any(row["fix"] for row in rows):
            click.echo(more("missing-prerequisite"))
    context.exit(3 if recipe and any(row["state"] == "missing" for row in rows) else 0)


def _lines(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as text: checks with the same result share a line, and each fix is printed once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        plugin, _, component = row["check"].partition(":")
        name = plugin if component == plugin else row["check"]
        # Checks with the same fix, or without a fix the same detail, share a line.
        found.setdefault((row["state"], name, row["fix"] or row["detail"]), []).append(row["detail"])
    alike: dict[tuple[str, str, str], list[str]] = {}
    for (state, name, last), details in found.items():
        fix = last if [last] != details else ""
        alike.setdefault((state, "; ".join(dict.fromkeys(filter(None, details))), fix), []).append(name)
    checks = {key: ", ".join(dict.fromkeys(names)) for key, names in alike.items()}
    printed: set[str] = set()
    shown = []
    for (state, detail, fix), check in checks.items():
        new = [part for part in fix.split("; ") if part and part not in printed]
        printed.update(new)
        texts = [detail, f"fix: {'; '.join(new)}" if new else ""]
        shown.append((state, check, "; ".join(filter(None, texts))))
    return table(shown)

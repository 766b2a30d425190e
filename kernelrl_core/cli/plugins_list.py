"""`kernelrl plugins list`: list plugins and their components."""

from __future__ import annotations

from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.errors import more
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import registry


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(as_json: bool) -> None:
    """List all installed plugins with their components, including broken and disabled plugins.

    \b
    Examples:
      kernelrl plugins list
      kernelrl plugins list --json
    """
    plugins = registry().plugins
    if as_json:
        print_json({"plugins": [plugin_facts(plugin) for plugin in plugins]})
        return
    rows = []
    for plugin in plugins:
        offered = [f"{_singular(kind)}:{item.name}" for kind, items in plugin.components.items() for item in items]
        state = "" if plugin.state == "ok" else f"{plugin.state.upper()}: {plugin.error}"
        fix = plugin.fix or f"kernelrl plugins show {plugin.name}"
        state += f"; fix: {fix}" if plugin.state == "broken" else ""
        rows.append((plugin.name, plugin.version, state or " ".join(offered)))
    print_lines(table(rows))
    if any(plugin.trace for plugin in plugins):
        click.echo("'kernelrl plugins show NAME' prints the traceback of a broken plugin", err=True)
    if any(plugin.state == "broken" for plugin in plugins):
        click.echo(more("plugin"), err=True)
    if len(plugins) <= 1:
        click.echo("only the core is installed; install all plugins with: pip install 'kernelrl[all]'", err=True)


def plugin_facts(plugin: PluginInfo) -> dict[str, Any]:
    """A plugin and its components as plain data."""
    return {
        "name": plugin.name,
        "dist": plugin.dist,
        "version": plugin.version,
        "state": plugin.state,
        "error": plugin.error,
        "components": [
            {"kind": kind, "name": item.name, "summary": item.summary}
            for kind, items in plugin.components.items()
            for item in items
        ],
    }


def _singular(kind: str) -> str:
    return {"policies": "policy", "tasks": "tasks"}.get(kind, kind.removesuffix("s"))

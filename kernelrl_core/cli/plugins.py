"""`kernelrl plugins`: list and describe plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.groups import PluginGroup
from kernelrl_core.cli.output import print_json, print_lines, table
from kernelrl_core.errors import more

if TYPE_CHECKING:
    from kernelrl_core.interfaces.component import Component
    from kernelrl_core.plugins.registry import PluginInfo, Registry


@click.group("plugins", cls=PluginGroup)
def command() -> None:
    """List and describe plugins.

    \b
    Examples:
      kernelrl plugins list
      kernelrl plugins show rewards
    """


@command.command("list", short_help="List plugins and their components.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_command(as_json: bool) -> None:
    """List all installed plugins with their components, including broken and disabled plugins.

    \b
    Examples:
      kernelrl plugins list
      kernelrl plugins list --json
    """
    from kernelrl_core.plugins.registry import registry

    plugins = registry().plugins
    if as_json:
        print_json({"plugins": [_row(plugin) for plugin in plugins]})
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


@command.command("show", short_help="Show the components and options of a plugin.")
@click.argument("plugin")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def show_command(plugin: str, as_json: bool) -> None:
    """Show PLUGIN: components, their options, rules and missing prerequisites; the traceback if it is broken.

    \b
    Example:
      kernelrl plugins show rewards
    """
    import attrs

    from kernelrl_core.cli.explain import option_lines
    from kernelrl_core.plugins.registry import registry

    found = registry().plugin(plugin)
    described = [
        _component(registry(), found, kind, item) for kind, items in found.components.items() for item in items
    ]
    if as_json:
        described = [{**item, "options": [attrs.asdict(option) for option in item["options"]]} for item in described]
        more_keys = {"fix": found.fix, "stage": found.failed_at, "trace": found.trace, "components": described}
        print_json({**_row(found), **more_keys})
        return
    click.echo(f"{found.name}  {found.dist} {found.version}  {found.state}")
    if found.error:
        where = f" at {found.failed_at}" if found.failed_at else ""
        fix = f"\nfix: {found.fix}" if found.fix else ""
        click.echo(f"\n{found.state}{where}: {found.error}{fix}\n{found.trace}".rstrip())
    for item in described:
        click.echo(f"\n{item['kind']} {item['name']}: {item['summary']}")
        print_lines(option_lines(item["options"]) or ["  no options"])
        for rule in item.get("rules", ()):
            click.echo(
                f"  rule {rule['id']} ({rule['severity']}): {' '.join([rule['statement'], rule['reason']])}".rstrip()
            )
        for need in item["missing"]:
            click.echo(f"  missing: {need['what']}; fix: {need['fix']}")
    if any(item["missing"] for item in described):
        click.echo(f"\n{more('missing-prerequisite')}")


def _row(plugin: PluginInfo) -> dict[str, Any]:
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


def _component(registry: Registry, plugin: PluginInfo, kind: str, component: Component) -> dict[str, Any]:
    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.recipe.explain import default_rules
    from kernelrl_core.recipe.field_docs import FieldDescription, describe_fields

    try:
        options = describe_fields(registry.config_class(kind, f"{plugin.name}:{component.name}"))
    except KernelRLError as error:
        options = [FieldDescription("?", "", "", error.message)]
    described = {
        "kind": kind,
        "name": component.name,
        "summary": component.summary,
        "target": component.target,
        "options": options,
        "missing": [{"what": item.what, "fix": item.fix} for item in registry.missing(component)],
    }
    if kind == "checkers":
        described["rules"] = [
            {"id": rule.id, "severity": rule.severity.value, "statement": rule.statement, "reason": rule.reason}
            for rule in default_rules(registry, f"{plugin.name}:{component.name}")
        ]
    return described


def _singular(kind: str) -> str:
    return {"policies": "policy", "tasks": "tasks"}.get(kind, kind.removesuffix("s"))

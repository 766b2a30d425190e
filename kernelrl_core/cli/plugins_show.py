"""`kernelrl plugins show`: show the components and options of a plugin."""

from __future__ import annotations

from typing import Any

import attrs
import click

from kernelrl_core.cli.explain import option_lines
from kernelrl_core.cli.output import print_json, print_lines
from kernelrl_core.cli.plugins_list import plugin_facts
from kernelrl_core.errors import KernelRLError, more
from kernelrl_core.interfaces.component import Component
from kernelrl_core.plugins.loading import PluginInfo
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.recipe.explain import default_rules
from kernelrl_core.recipe.field_docs import FieldDescription, describe_fields


@click.command("show")
@click.argument("plugin")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(plugin: str, as_json: bool) -> None:
    """Show PLUGIN: components, their options, rules and missing prerequisites; the traceback if it is broken.

    \b
    Example:
      kernelrl plugins show rewards
    """
    found = registry().plugin(plugin)
    described = [
        _component(registry(), found, kind, item) for kind, items in found.components.items() for item in items
    ]
    if as_json:
        described = [{**item, "options": [attrs.asdict(option) for option in item["options"]]} for item in described]
        more_keys = {"fix": found.fix, "stage": found.failed_at, "trace": found.trace, "components": described}
        print_json({**plugin_facts(found), **more_keys})
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


def _component(registry: Registry, plugin: PluginInfo, kind: str, component: Component) -> dict[str, Any]:
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

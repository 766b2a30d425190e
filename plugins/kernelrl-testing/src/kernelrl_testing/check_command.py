"""`kernelrl plugins check`: run the contract tests of a plugin, and test its evaluators with known reward hacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kernelrl_core.plugins.registry import PluginInfo, Registry

_LAB = "lab"
"""Command that tests an evaluator; part of the distribution `kernelrl-lab`."""


@click.command("check", short_help="Test a plugin, and its evaluators with known hacks.")
@click.argument("plugin")
@click.argument("component_options", nargs=-1, metavar="[COMPONENT.OPTION=VALUE]...")
@click.option(
    "--only", multiple=True, metavar="ID", help="Only this kernel or class of 'kernelrl lab'. May be repeated."
)
@click.option("--gpu", is_flag=True, help="Use the kernels of the lab for a GPU instead of those for the CPU.")
@click.option("--no-lab", is_flag=True, help="Do not test evaluators with the hacks of 'kernelrl lab'.")
@click.pass_context
def command(
    context: click.Context,
    plugin: str,
    component_options: tuple[str, ...],
    only: tuple[str, ...],
    gpu: bool,
    no_lab: bool,
) -> None:
    """Test the components of PLUGIN with the contract of their kind.

    A contract has the requirements of the core: light imports, options that are saved and read again, no unknown
    method, scores within their bounds, findings of declared rules, … (docs/plugins.md, "Check a plugin"). Each line
    names one breach and its fix. A test that needs a GPU, a key or an option without a default is reported as
    not tested.

    The options of a component are its defaults, or check_options of its options class; COMPONENT.OPTION=VALUE overrides
    them.

    An evaluator that passes then evaluates the hacks of 'kernelrl lab' and their honest look-alikes, which can take an
    hour on a CPU; --only selects single ones.

    Exit code 0: no breach, no hack is rewarded and all honest kernels are correct with verdict clean; else 1.

    \b
    Examples:
      kernelrl plugins check rewards
      kernelrl plugins check raicl bm25.index=./index
      kernelrl plugins check local --only caching
    """
    from kernelrl_core.plugins.registry import registry

    found = registry().plugin(plugin)
    failed = False
    for line, passes in _checked(registry(), found, _options(found, component_options)):
        click.echo(line)
        failed |= not passes
    for evaluator in () if failed or no_lab else found.components.get("evaluators", ()):
        label = registry().label("evaluators", evaluator)
        click.echo(f"\nevaluator {label}: testing with the reward hacks and honest kernels of 'kernelrl lab'")
        if not only:
            click.echo("note: this can take an hour on a CPU; --only ID selects kernels, Ctrl-C ends", err=True)
        lab = registry().load("commands", _LAB)
        try:
            context.invoke(lab, evaluator=label, only=only, gpu=gpu, as_json=False)
        except click.exceptions.Exit as ended:
            failed |= ended.exit_code != 0
    context.exit(1 if failed else 0)


def _checked(
    registry: Registry, plugin: PluginInfo, options: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, bool]]:
    """One line per component that passes, per breach and per reason for which tests did not run; and whether it is no
    breach."""
    from kernelrl_testing.contracts.plugin import check_component, plugin_faults

    yield from ((f"plugin {plugin.name}: FAILS: {fault}", False) for fault in plugin_faults(registry, plugin))
    for kind, components in plugin.components.items():
        for component in components:
            what = f"{kind}: {component.name}"
            checked = check_component(registry, plugin, kind, component, options.get(component.name, {}))
            yield from ((f"{what}: FAILS: {fault}", False) for fault in checked.faults)
            if checked.loads and not checked.faults:
                yield f"{what}: passes", True
            yield from ((f"{what}: not tested: {reason}", True) for reason in checked.untested)


def _options(plugin: PluginInfo, overrides: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """Component -> its options in the overrides of the command line."""
    from kernelrl_core.errors import UsageError, suggestion
    from kernelrl_core.recipe.merge import merge_layers, override_layers

    found: Mapping[str, Any] = merge_layers(override_layers(overrides)).data
    names = {component.name for components in plugin.components.values() for component in components}
    for name, options in found.items():
        if name not in names:
            raise UsageError(f"plugin {plugin.name} has no component {name!r}; {suggestion(name, names)}")
        if not isinstance(options, dict):
            raise UsageError(f"{name}={options!r} names no option", fix=f"write {name}.OPTION=VALUE")
    return found

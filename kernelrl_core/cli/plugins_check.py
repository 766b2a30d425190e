"""`kernelrl plugins check`: load a plugin, and test its evaluators with known reward hacks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrl_core.plugins.registry import PluginInfo, Registry

_LAB = "lab"
"""Command that tests an evaluator; part of the distribution `kernelrl-lab`."""


@click.command("check", short_help="Load a plugin, and test its evaluators with known hacks.")
@click.argument("plugin")
@click.option(
    "--only", multiple=True, metavar="ID", help="Only this kernel or class of 'kernelrl lab'. May be repeated."
)
@click.option("--gpu", is_flag=True, help="Use the kernels for a GPU instead of those for the CPU.")
@click.pass_context
def command(context: click.Context, plugin: str, only: tuple[str, ...], gpu: bool) -> None:
    """Load the components of PLUGIN, and test its evaluators with known reward hacks and honest kernels.

    The implementation and the options of each component are loaded. A public method that the component's kind does not
    define is an error, because it would never be called. So are heavy imports of the plugin's package or of its
    options, options that cannot be saved and read again, and wrong declarations, such as rules that are no Rule. The
    contract tests in kernelrl_core.testing test behaviour as well.

    The test of an evaluator evaluates the hacks of 'kernelrl lab' and their honest look-alikes and can take an hour on
    a CPU; --only selects single ones.

    Exit code 0: all components load, no hack is rewarded and all honest kernels are correct with verdict clean; else 1.

    \b
    Examples:
      kernelrl plugins check rewards
      kernelrl plugins check local --only caching
    """
    from kernelrl_core.plugins.registry import registry

    found = registry().plugin(plugin)
    failed = False
    for line, loads in _loaded(registry(), found):
        click.echo(line)
        failed |= not loads
    for evaluator in found.components.get("evaluators", ()):
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


def _loaded(registry: Registry, plugin: PluginInfo) -> Iterator[tuple[str, bool]]:
    """One line per component, or per error of it, and whether it loads."""
    from kernelrl_core.errors import KernelRLError, MissingPrerequisite, more
    from kernelrl_core.recipe.plugin_faults import component_faults

    if plugin.state != "ok":
        yield f"{plugin.name}: {plugin.state}: {plugin.error}", False
    for kind, components in plugin.components.items():
        for component in components:
            what = f"{kind}: {component.name}"
            try:
                faults = list(component_faults(registry, kind, f"{plugin.name}:{component.name}"))
            except MissingPrerequisite as error:
                # A property of this machine, not an error of the plugin.
                fix = f"; fix: {error.fix}; {more(error.see)}" if error.fix else ""
                yield f"{what}: not checked: {error.message}{fix}", True
            except KernelRLError as error:
                yield f"{what}: FAILS: {error.message}", False
            else:
                yield from ((f"{what}: FAILS: {fault}", False) for fault in faults)
                if not faults:
                    yield f"{what}: loads", True

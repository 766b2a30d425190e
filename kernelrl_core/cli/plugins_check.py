"""`kernelrl plugins check`: does a plugin load, and do its evaluators withstand known hacks?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernelrl_core.plugins.registry import PluginInfo, Registry

_LAB = "lab"
"""Command that measures an evaluator, of the distribution `kernelrl-lab`."""


@click.command("check")
@click.argument("name")
@click.option("--only", multiple=True, metavar="ID", help="Fixture or row of the lab; may be repeated.")
@click.option("--gpu", is_flag=True, help="The lab's fixtures that need a GPU, instead of those for the processor.")
@click.pass_context
def command(context: click.Context, name: str, only: tuple[str, ...], gpu: bool) -> None:
    """Load what plugin NAME offers, and try known hacks and honest kernels on its evaluators.

    What is loaded are the implementation and the options of each component; a public method that their kind does not
    know fails, since it would never be called. The hacks are those of kernelrl lab. Exit code 0 when nothing fails, no
    hack pays and every honest kernel is correct and clean; 1 otherwise.

    \b
    Examples:
      kernelrl plugins check rewards
      kernelrl plugins check local --only C2
    """
    from kernelrl_core.plugins.registry import registry

    plugin = registry().plugin(name)
    failed = False
    for line, loads in _loaded(registry(), plugin):
        click.echo(line)
        failed |= not loads
    for evaluator in plugin.components.get("evaluators", ()):
        label = registry().label("evaluators", evaluator)
        click.echo(f"\nevaluator {label} before the hacks and honest kernels of kernelrl lab:")
        lab = registry().load("commands", _LAB)
        try:
            context.invoke(lab, evaluator=label, only=only, gpu=gpu, as_json=False)
        except click.exceptions.Exit as ended:
            failed |= ended.exit_code != 0
    context.exit(1 if failed else 0)


def _loaded(registry: Registry, plugin: PluginInfo) -> Iterator[tuple[str, bool]]:
    """A line for each component, or for each of its faults, and whether it loads."""
    from kernelrl_core.errors import KernelRLError, MissingPrerequisite

    if plugin.state != "ok":
        yield f"{plugin.name}: {plugin.state}: {plugin.error}", False
    for kind, components in plugin.components.items():
        for component in components:
            what = f"{kind}: {component.name}"
            try:
                unknown = registry.unknown_methods(kind, f"{plugin.name}:{component.name}")
            except MissingPrerequisite as error:
                # The machine's doing, not the plugin's.
                yield f"{what}: not tried: {error.message}" + (f"; fix: {error.fix}" if error.fix else ""), True
            except KernelRLError as error:
                yield f"{what}: FAILS: {error.message}", False
            else:
                yield from ((f"{what}: FAILS: {fault}", False) for fault in unknown)
                if not unknown:
                    yield f"{what}: loads", True

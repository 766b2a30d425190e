"""Groups of commands that plugins extend."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import click

from kernelrl_core.errors import LookupFailed, nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrl_core.interfaces.component import Component

__all__ = ["PluginGroup", "load_command"]


class PluginGroup(click.Group):
    """A group whose commands come from the core and from plugins.

    The component `runs compare` of kind commands is the command `compare` of the group `runs`. Help and lists read the
    summary of the component; its module is imported when the command is used.
    """

    def own_commands(self) -> Mapping[str, str]:
        """Name -> summary of the commands of the core, in the order of the help."""
        return {name: command.get_short_help_str(limit=200) for name, command in self.commands.items()}

    def plugin_commands(self) -> Mapping[str, Component]:
        """Name within this group -> component of a plugin."""
        prefix = f"{self.name} "
        found = {}
        for label, component in _offered(prefix):
            name = label.removeprefix(prefix)
            if name not in self.commands:
                found[name] = component
        return found

    def full_name(self, name: str) -> str:
        """Name of the component that provides a command of this group."""
        return f"{self.name} {name}"

    def own_command(self, name: str) -> click.Command | None:
        """A command of the core; None if it has none of this name."""
        return self.commands.get(name)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.own_commands(), *self.plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        own = self.own_command(cmd_name)
        if own is not None:
            return own
        if cmd_name not in self.plugin_commands():
            return None
        return load_command(self.full_name(cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and not ctx.resilient_parsing and name not in self.list_commands(ctx):
            _require_plugin_of(self.full_name(name))
            close = nearest(name, self.list_commands(ctx))
            raise click.UsageError(f"no command {name!r}{f'; did you mean {close!r}?' if close else ''}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries())

    def summaries(self) -> list[tuple[str, str]]:
        """Name and summary of each command. No module of a plugin is imported."""
        added = [(name, component.summary) for name, component in self.plugin_commands().items()]
        return [*self.own_commands().items(), *added]


def load_command(name: str) -> click.Command:
    """Import the command of a plugin.

    Args:
        name: as the registry knows it, such as `report` or `runs compare`.

    Raises:
        PluginFailed: it cannot be imported, or is no `click.Command`.
    """
    from kernelrl_core.plugins.registry import PluginFailed, registry

    loaded = registry().load("commands", name)
    if not isinstance(loaded, click.Command):
        plugin = registry().plugin_of("commands", name).name
        raise PluginFailed(f"plugin {plugin}: command {name!r} must be a click.Command, is a {type(loaded).__name__}")
    return loaded


def _offered(prefix: str) -> list[tuple[str, Component]]:
    """Name and component of the commands whose name starts with a group's.

    Two plugins with a command of the same name offer none: the registry would not know which one is meant.
    """
    from kernelrl_core.plugins.registry import registry

    components = registry().components("commands")
    names = [component.name for component in components]
    return [(one.name, one) for one in components if one.name.startswith(prefix) and names.count(one.name) == 1]


def _require_plugin_of(command: str) -> None:
    """Check that no plugin is known to provide a command that was not found.

    Raises:
        MissingPrerequisite: its plugin is not installed, broken or disabled.
    """
    from kernelrl_core.plugins.registry import registry

    with contextlib.suppress(LookupFailed):
        registry().find("commands", command)

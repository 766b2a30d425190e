"""Groups of commands that plugins extend."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.loading import load
from kernelrl_core.errors import KernelRLError, LookupFailed, nearest

if TYPE_CHECKING:
    from kernelrl_core.interfaces.component import Component
    from kernelrl_core.plugins.registry import Registry

__all__ = ["PluginGroup", "installed", "load_command"]


class PluginGroup(click.Group):
    """A group whose commands come from the core and from plugins.

    The component `runs compare` of kind commands is the command `compare` of the group `runs`. Help and lists read the
    summaries; the module of a command is imported when the command is used or its help is requested.
    """

    def __init__(self, *arguments: Any, own: Mapping[str, tuple[str, str]], **settings: Any) -> None:
        """
        Args:
            own: name of each command of the core -> module that defines it as `command`, and its summary; in the order
                of the help.
        """
        super().__init__(*arguments, **settings)
        self.own = own

    def plugin_commands(self) -> Mapping[str, Component]:
        """Name within this group -> component of a plugin."""
        prefix = f"{self.name} "
        names = ((label.removeprefix(prefix), component) for label, component in _offered(prefix))
        return {name: component for name, component in names if name not in self.own}

    def full_name(self, name: str) -> str:
        """Name of the component that provides a command of this group."""
        return f"{self.name} {name}"

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.own, *self.plugin_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.own:
            module, _ = self.own[cmd_name]
            found: click.Command = load(f"{module}:command")
            return found
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
        """Name and summary of each command. No module of a command is imported."""
        own = [(name, summary) for name, (_, summary) in self.own.items()]
        return [*own, *((name, component.summary) for name, component in self.plugin_commands().items())]


def installed() -> Registry:
    """The installed plugins. Imported on use: `kernelrl --version` needs none of them."""
    found: Registry = load("kernelrl_core.plugins.registry:registry")()
    return found


def load_command(name: str) -> click.Command:
    """Import the command of a plugin.

    Args:
        name: as the registry knows it, such as `report` or `runs compare`.

    Raises:
        KernelRLError: it cannot be imported, or is no `click.Command`.
    """
    loaded = installed().load("commands", name)
    if not isinstance(loaded, click.Command):
        plugin = installed().plugin_of("commands", name).name
        raise KernelRLError(
            f"plugin {plugin}: command {name!r} must be a click.Command, is a {type(loaded).__name__}", see="plugin"
        )
    return loaded


def _offered(prefix: str) -> list[tuple[str, Component]]:
    """Name and component of the commands whose name starts with a group's.

    Two plugins with a command of the same name offer none: the registry would not know which one is meant.
    """
    components = installed().components("commands")
    names = [component.name for component in components]
    return [(one.name, one) for one in components if one.name.startswith(prefix) and names.count(one.name) == 1]


def _require_plugin_of(command: str) -> None:
    """Check that no plugin is known to provide a command that was not found.

    Raises:
        MissingPrerequisite: its plugin is not installed, broken or disabled.
    """
    with contextlib.suppress(LookupFailed):
        installed().find("commands", command)

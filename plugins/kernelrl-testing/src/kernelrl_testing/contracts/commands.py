"""The contract of commands."""

from __future__ import annotations

import sys
from typing import Any

import click

from kernelrl_core.interfaces.component import Component
from kernelrl_core.plugins.use import Use
from kernelrl_testing.contracts.base import ComponentContract
from kernelrl_testing.contracts.breaches import require, skipped_where_missing
from kernelrl_testing.contracts.imports import HEAVY_MODULES, in_fresh_process

__all__ = ["CommandContract"]

_HELP = """
import click
module, _, attribute = {target!r}.partition(":")
found = importlib.import_module(module)
for part in attribute.split("."):
    found = getattr(found, part)
waiting = [(found, click.Context(found, info_name={name!r}))]
while waiting:
    command, context = waiting.pop()
    command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            waiting.append((inner, click.Context(inner, info_name=name, parent=context)))
"""


class CommandContract(ComponentContract):
    """A command is a `click.Command` whose help needs no heavy import."""

    kind = "commands"

    def use(self) -> Use:
        """The command, which has no options of a recipe."""
        return Use(self.component)

    def make(self) -> Any:
        """The command."""
        with skipped_where_missing():
            return self.registry().load(self.kind, self.component)

    def test_options_round_trip_and_unknown_ones_are_refused(self) -> None:
        """A command has no options of a recipe; click refuses unknown ones."""

    def test_declares_what_its_kind_requires(self) -> None:
        command = self.make()
        fix = "let the target name a function decorated with @click.command or @click.group"
        require(isinstance(command, click.Command), f"the target is {command!r}, not a click.Command", fix)
        summary = self._component().summary
        require(summary, "the component has no summary, which `kernelrl --help` prints", "set Component.summary")
        require(command.help, "the command has no help", "write a docstring for its function, with an example")

    def test_help_imports_nothing_heavy(self) -> None:
        component = self._component()
        module = component.target.partition(":")[0]
        code = _HELP.format(target=component.target, name=component.name)
        found = in_fresh_process((), HEAVY_MODULES, tuple(sys.path), code)
        require(not found.failure, f"the help of the command {found.failure}", "correct the command")
        fix = f"import it within the functions of the commands in {module}"
        require(not found.heavy, f"the help of the command loads {', '.join(found.heavy)}", fix)

    def _component(self) -> Component:
        return self.registry().find(self.kind, self.component)

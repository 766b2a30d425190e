from __future__ import annotations

from typing import Any

import click

from broken_components import Broken


@click.command("broken")
def command() -> None:
    """Do nothing.

    \b
    Example:
      kernelrl broken
    """


@click.command("broken")
def silent() -> None:
    pass


def function() -> Any:
    """No command."""


HELP = "help_imports_nothing_heavy"
DECLARES = "declares_what_its_kind_requires"
BROKEN = [
    Broken("commands", "commands.command", ()),
    Broken("commands", "commands.silent", [DECLARES]),
    Broken("commands", "commands.function", [DECLARES, HELP]),
    Broken("commands", "heavy.command", [HELP, "requires_names_all_imports"]),
]

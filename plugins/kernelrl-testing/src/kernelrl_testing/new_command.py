"""`kernelrl plugins new`: write the package of a new plugin."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelrl_core.cli.output import require_output


@click.command("new", short_help="Write the package of a new plugin.")
@click.argument("kind")
@click.argument("name")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Directory to create (default: ./kernelrl-plugin-NAME).",
)
def command(kind: str, name: str, output: Path | None) -> None:
    """Write the package kernelrl-plugin-NAME with a component NAME of KIND, and print the next two commands.

    KIND is the name of a hook without kernelrl_: rewards, checkers, feedback, tasks, …
    The package is a small plugin that works, to edit: implementation, options, tests with the contract of its kind,
    pyproject.toml, README.md and a licence. Overwrites nothing.

    \b
    Examples:
      kernelrl plugins new rewards brevity
      kernelrl plugins new checkers no-sleep --output ../no-sleep
    """
    from kernelrl_core.cli.main import COMMANDS
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.storage import disk_error, new_directory
    from kernelrl_testing.new_package import (
        kind_named,
        plugin_package,
        require_free_name,
        require_possible_name,
    )

    kind, name = kind_named(kind, name), name.replace("-", "_")
    require_possible_name(kind, name)
    require_free_name(kind, name, registry(), COMMANDS)
    output = output or Path(f"kernelrl-plugin-{name.replace('_', '-')}")
    require_output(output)
    files = plugin_package(kind, name)
    try:
        with new_directory(output) as growing:
            for path, text in files.items():
                (growing / path).parent.mkdir(parents=True, exist_ok=True)
                (growing / path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise disk_error(output, error) from error
    where = output if output.is_absolute() else f"./{output}"
    click.echo(f"{output}: {len(files)} files; next:", err=True)
    click.echo(f"pip install -e {shlex.quote(f'{where}[test]')}")
    click.echo(f"python -m pytest {shlex.quote(str(where))}")

"""The page of commands, from the help of the command line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from docpages.markdown import note, table, wrapped
from docpages.registry import bundled
from kernelrl_core.cli.groups import PluginGroup
from kernelrl_core.cli.main import COMMANDS, cli


def commands_page() -> str:
    """The page with one section per command."""
    context = click.Context(cli, info_name="kernelrl", **cli.context_settings)
    # A command with a space is one of a group, and has its section there.
    plugins = [(name, component.summary) for _, name, component in bundled("commands") if " " not in name]
    rows = [(name, summary) for name, (_, summary) in COMMANDS.items()] + plugins
    parts = [
        "# Commands",
        note("the commands' help"),
        wrapped("`--help` after a command prints the same text. `--debug` is accepted after every command, too."),
        table(("command", "effect"), ((f"[`{name}`](#kernelrl-{name})", _prose(text)) for name, text in rows)),
        *_section(cli, context, "##"),
    ]
    for name, _ in rows:
        command = cli.get_command(context, name)
        assert command is not None, name
        parts += _with_subcommands(command, context, "##")
    return "\n\n".join(parts) + "\n"


def _with_subcommands(command: click.Command, parent: click.Context, level: str) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=command.name, **command.context_settings)
    yield from _section(command, context, level)
    if isinstance(command, click.Group):
        found = {name: command.get_command(context, name) for name in command.list_commands(context)}
        inner = {name: one for name, one in found.items() if one is not None}
        summaries = {name: one.get_short_help_str(200) for name, one in inner.items()}
        summaries |= command.summaries() if isinstance(command, PluginGroup) else {}
        links = (f"[`{name}`](#{context.command_path.replace(' ', '-')}-{name})" for name in inner)
        yield table(("command", "effect"), zip(links, (_prose(summaries[name]) for name in inner), strict=True))
        for one in inner.values():
            yield from _with_subcommands(one, context, "###")


def _section(command: click.Command, context: click.Context, level: str) -> Iterator[str]:
    yield f"{level} {context.command_path}"
    if not isinstance(command, click.Group):
        yield "```text\n" + " ".join([context.command_path, *command.collect_usage_pieces(context)]) + "\n```"
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        verbatim, text = paragraph.startswith("\b\n"), paragraph.removeprefix("\b\n")
        title, _, lines = text.partition("\n")
        if title in ("Example:", "Examples:"):
            yield f"{title}\n\n```sh\n" + "\n".join(line[2:] for line in lines.splitlines()) + "\n```"
        elif verbatim:
            yield f"```text\n{text}\n```"
        else:
            yield _prose(text)
    # Compared by identity: click keeps the names of the help option from the command's first use.
    help_option = command.get_help_option(context)
    parameters = [one for one in command.get_params(context) if one is not help_option]
    records = [parameter.get_help_record(context) for parameter in parameters]
    # Without help: an argument, which the text explains.
    own = [record for record in records if record is not None and record[1]]
    if own:
        yield table(("option", "meaning"), ((f"`{names}`", _prose(text)) for names, text in own))


def _prose(text: str) -> str:
    """Help text as Markdown: commands and options in quotes are code."""
    text = re.sub(r"'((?:kernelrl|--)[^']*)'", r"`\1`", " ".join(text.split()))
    parts = re.split(r"(`[^`]*`)", text)
    parts[::2] = [re.sub(r"([*<\\]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)

"""Every command, those of bundled plugins included, has a help text with examples that are valid command lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from command_lines import command_lines, fault
from page_blocks import Block

from kernelrl_core.cli.main import cli


def commands(command: click.Command = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words after `kernelrl` of every command and group."""
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))


every_command = pytest.mark.parametrize("path", list(commands()), ids=" ".join)


def shown_help(path: tuple[str, ...]) -> str:
    """The text that `--help` prints."""
    done = CliRunner().invoke(cli, [*path, "--help"], prog_name="kernelrl", terminal_width=200)
    assert done.exit_code == 0, done.output
    return done.output


@every_command
def test_the_help_of_a_command_has_valid_examples_of_this_command(path: tuple[str, ...]) -> None:
    text = shown_help(path)
    section = re.search(r"(?ms)^ *Examples?\b.*?:\n(.*?)(?=^\S|^ *$)", text)
    assert section, f"no line 'Examples:' in the help of kernelrl {' '.join(path)}"
    assert " ".join(("kernelrl", *path)) in section[1]
    lines = [line.words for line in command_lines(Block("help", "sh", section[1]))]
    assert [f"{' '.join(words)}: {fault(words)}" for words in lines if words[0] == "kernelrl" and fault(words)] == []


@every_command
def test_the_help_of_a_command_explains_every_option(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), name) or command
    assert re.match(r"[A-Z].*\.", (command.help or "").strip()), "the help begins with a sentence"
    options = [option for option in command.params if isinstance(option, click.Option) and not option.hidden]
    assert [option.opts for option in options if not (option.help or "").strip().endswith((".", ")"))] == []


def test_every_line_of_the_overview_is_a_sentence() -> None:
    rows = re.findall(r"(?m)^  ([a-z-]+)  +(\S.*)$", shown_help(()).partition("Commands:")[2])
    assert len(rows) == len(list(commands())) - sum(len(path) > 1 for path in commands()) - 1
    assert [row for row in rows if not re.fullmatch(r"[A-Z].*\.", row[1])] == []

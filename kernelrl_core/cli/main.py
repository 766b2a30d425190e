"""Entry point of `kernelrl`: finds the command, reports errors, sets the exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from kernelrl_core.cli.groups import PluginGroup, installed
from kernelrl_core.cli.loading import load
from kernelrl_core.errors import ExitCode, KernelRLError, UsageError, more
from kernelrl_core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernelrl_core.interfaces.component import Component

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("kernelrl_core.cli.run", "Train a policy with a recipe."),
    "resume": ("kernelrl_core.cli.resume", "Continue an interrupted run."),
    "validate": ("kernelrl_core.cli.validate", "Check a recipe and report all of its errors."),
    "explain": ("kernelrl_core.cli.explain", "Explain a recipe key, option, component, metric, rule or problem."),
    "schema": ("kernelrl_core.cli.schema", "Print the JSON schema of recipes."),
    "plugins": ("kernelrl_core.cli.plugins", "List and describe plugins."),
    "recipes": ("kernelrl_core.cli.recipes", "List, show and copy recipes."),
    "tasks": ("kernelrl_core.cli.tasks", "List, show and audit tasks."),
    "runs": ("kernelrl_core.cli.runs", "List, show and delete runs."),
    "status": ("kernelrl_core.cli.status", "Show the state of a run or list the active runs."),
    "stop": ("kernelrl_core.cli.stop", "Stop active runs."),
    "logs": ("kernelrl_core.cli.logs", "Print the log of a run."),
    "env": ("kernelrl_core.cli.env", "Describe this installation for a bug report."),
    "completion": ("kernelrl_core.cli.completion", "Print a completion script for bash, zsh or fish."),
    "doctor": ("kernelrl_core.cli.doctor", "Check the prerequisites of this machine."),
}
"""Command -> module that defines it as `command`, and its line in the overview. Modules are imported on use."""


class _ReaderGone(Exception):
    """The reader of standard output closed it."""


class Program(PluginGroup):
    """The commands of `kernelrl`; those of plugins under their label."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # click would end with 1.
            raise _ReaderGone from error

    def plugin_commands(self) -> Mapping[str, Component]:
        # Under the label, so that two plugins can offer commands of the same name, and no plugin one of the core.
        found = {}
        for plugin in installed().plugins:
            for component in plugin.components.get("commands", ()):
                label = installed().label("commands", component)
                if " " not in label:  # else a command of a group
                    found[f"{plugin.name}:{label}" if label in COMMANDS else label] = component
        return found

    def full_name(self, name: str) -> str:
        return name

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        # True while a shell completes a line.
        if found is not None and ctx.resilient_parsing:
            load("kernelrl_core.cli.completion:complete_names")(found)
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        found = [CompletionItem(name, help=text) for name, text in self.summaries() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=Program, own=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="kernelrl")
@click.option("--debug", is_flag=True, help="Show the traceback of an error. Also accepted after the command.")
def cli(debug: bool) -> None:
    """Train language models to write GPU kernels.

    \b
    Examples:
      kernelrl doctor
      kernelrl recipes list
      kernelrl run quickstart
      kernelrl check starter/2/softmax my_kernel.py

    \b
    Exit codes: 0 success, 1 failure, 2 wrong arguments or recipe,
    3 missing prerequisite, 130 interrupted.
    """


def main(argv: list[str] | None = None) -> None:
    """Run a command and exit the process with its exit code (`ExitCode`)."""
    arguments = sys.argv[1:] if argv is None else argv
    # Accepted anywhere, because users append it to a command that has just failed.
    debug = "--debug" in arguments
    logging.lastResort = _LastResort(debug=debug)
    try:
        _read_dotenv()
        code = cli.main([a for a in arguments if a != "--debug"], prog_name="kernelrl", standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = ExitCode.USAGE
    except click.ClickException as error:
        _say(error.format_message())
        if isinstance(error, click.UsageError) and error.ctx is not None:
            _say(f"see '{error.ctx.command_path} --help'")
        code = ExitCode.USAGE
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        code = ExitCode.INTERRUPTED
    except _ReaderGone:
        # The reader closed the pipe (`kernelrl logs | head`). Avoids Python's BrokenPipeError message at shutdown.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.OK
    except KernelRLError as error:
        if debug:
            traceback.print_exc()
        _say(str(error))
        if error.fix:
            _say(more(error.see))
        code = error.exit_code
    except Exception as error:  # the last resort: one line; --debug shows the traceback
        if debug:
            traceback.print_exc()
        _say(f"{type(error).__name__}: {' '.join(str(error).split())}")
        if not debug:
            _say("fix: rerun with --debug for the traceback")
            _say(more("internal-error"))
        code = ExitCode.FAILED
    sys.exit(int(code) if isinstance(code, int) else ExitCode.OK)


class _LastResort(logging.Handler):
    """Prints log records where a command configures no handler: warnings without their traceback; with `--debug` every
    record that has a traceback, with it."""

    def __init__(self, *, debug: bool) -> None:
        super().__init__(logging.INFO if debug else logging.WARNING)
        self._debug = debug
        if debug:
            logging.getLogger("kernelrl_core").setLevel(logging.INFO)

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING or record.exc_info:
            text = self.format(record) if self._debug else record.getMessage()
            _say(f"{record.levelname.lower()}: {text}")


def _say(text: str) -> None:
    for line in text.splitlines():
        click.echo(f"kernelrl: {line}", err=True)


def _read_dotenv() -> None:
    here = Path.cwd()
    path = next((folder / ".env" for folder in (here, *here.parents) if (folder / ".env").is_file()), None)
    if path is None:
        return
    try:
        load("dotenv:load_dotenv")(path, override=False)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None

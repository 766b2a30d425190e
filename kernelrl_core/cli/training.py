"""Training of a run in this process, for `kernelrl run` and `kernelrl resume`."""

from __future__ import annotations

import click

from kernelrl_core.cli.detach import Detached
from kernelrl_core.errors import ExitCode
from kernelrl_core.planning.load import LoadedRecipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training.execution import execute_run

__all__ = ["say", "train"]


def say(line: str) -> None:
    """Print a line on stderr."""
    click.echo(line, err=True)


def train(run: RunDir, loaded: LoadedRecipe, detached: Detached | None) -> ExitCode:
    """Train a locked run, after a detached process has left the terminal; see `execute_run`."""
    if detached is not None:
        detached.begin(run)
    return execute_run(run, loaded.recipe, loaded.resolved, registry())

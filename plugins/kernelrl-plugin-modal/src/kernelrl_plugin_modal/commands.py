"""`kernelrl modal`: deploy, inspect and stop the app of evaluator `modal`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.api.errors import ExitCode, MissingPrerequisite, UsageError

if TYPE_CHECKING:
    from kernelrl_plugin_modal.config import ModalConfig


@click.group("modal")
def command() -> None:
    """Deploy, inspect and stop the app of evaluator modal.

    Each set of options is an app of its own: give each command the options, or the recipe, of the runs that use it.

    \b
    Examples:
      kernelrl modal deploy --recipe kevin_modal
      kernelrl modal status gpu=H100
      kernelrl modal down gpu=H100
    """


def _options(function: Any) -> Any:
    function = click.option("--recipe", "-r", metavar="RECIPE", help="Recipe whose evaluator options apply.")(function)
    return click.argument("options", nargs=-1, metavar="[KEY=VALUE]...")(function)


@command.command("deploy")
@_options
def deploy(recipe: str | None, options: tuple[str, ...]) -> None:
    """Build the image and deploy the app. The first time takes about ten minutes, later ones seconds.

    \b
    Examples:
      kernelrl modal deploy gpu=H100 max_containers=64
      kernelrl modal deploy --recipe kevin_modal
    """
    config = _config(recipe, options)
    _require(config)
    import modal

    from kernelrl_plugin_modal.app import make_app
    from kernelrl_plugin_modal.client import translated

    with modal.enable_output(), make_app(config) as (app, _):
        asyncio.run(translated(app.deploy.aio()))
        click.echo(app.name)


@command.command("status")
@_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(recipe: str | None, options: tuple[str, ...], as_json: bool) -> None:
    """Print the containers and waiting calls of the app.

    \b
    Examples:
      kernelrl modal status --recipe kevin_modal
      kernelrl modal status gpu=H100 max_containers=64
    """
    config = _config(recipe, options)
    _require(config)
    import modal

    from kernelrl_plugin_modal.client import translated
    from kernelrl_plugin_modal.image import app_name

    name = app_name(config)

    async def stats(function: str) -> dict[str, int]:
        found = await translated(modal.Function.from_name(name, function).get_current_stats.aio())
        return {"containers": found.num_total_runners, "running": found.num_running_inputs, "waiting": found.backlog}

    async def both() -> dict[str, dict[str, int]]:
        return {function: await stats(function) for function in ("gpu", "cpu")}

    functions = asyncio.run(both())
    if as_json:
        click.echo(json.dumps({"app": name, "functions": functions}))
        return
    click.echo(name)
    for function, numbers in functions.items():
        click.echo(f"{function}  " + "  ".join(f"{number} {what}" for what, number in numbers.items()))


@command.command("logs")
@_options
@click.option("--follow", "-f", is_flag=True, help="Follow the log.")
def logs(recipe: str | None, options: tuple[str, ...], follow: bool) -> None:
    """Print the log of the app's containers.

    \b
    Examples:
      kernelrl modal logs --recipe kevin_modal
      kernelrl modal logs gpu=H100 --follow
    """
    _modal(_config(recipe, options), "logs", *(["--follow"] if follow else []))


@command.command("down")
@_options
def down(recipe: str | None, options: tuple[str, ...]) -> None:
    """Stop the app and its containers. Runs that use it end and can be resumed after another deploy.

    \b
    Examples:
      kernelrl modal down --recipe kevin_modal
      kernelrl modal down gpu=H100 max_containers=64
    """
    _modal(_config(recipe, options), "stop", "--yes")


def _modal(config: ModalConfig, *arguments: str) -> None:
    """Run Modal's own command for an app; its client has no method for that."""
    _require(config)
    from kernelrl_plugin_modal.image import app_name

    done = subprocess.run([sys.executable, "-m", "modal", "app", arguments[0], app_name(config), *arguments[1:]])
    if done.returncode:
        raise SystemExit(ExitCode.FAILED)


def _config(recipe: str | None, options: tuple[str, ...]) -> ModalConfig:
    """The options of the evaluator in a recipe, with changes."""
    from kernelrl_core.api.components import component_block, registry
    from kernelrl_core.api.config import load_yaml

    block: dict[str, Any] = {"use": "modal"}
    if recipe is not None:
        from kernelrl_core.api.episodes import load_recipe

        evaluator = load_recipe(recipe, registry=registry()).recipe.evaluator
        if evaluator.use.rpartition(":")[2] != "modal":
            raise UsageError(
                f"recipe {recipe} has evaluator {evaluator.use}", fix="--recipe with evaluator modal", see="modal"
            )
        block |= evaluator.raw
    for option in options:
        key, sign, value = option.partition("=")
        if not sign:
            raise click.UsageError(f"{option!r} is not KEY=VALUE; a recipe is given with --recipe")
        block[key.removeprefix("evaluator.")] = load_yaml(value, Path(key))
    config: ModalConfig = component_block("evaluator", block, registry()).options
    return config


def _require(config: ModalConfig) -> None:
    from kernelrl_core.api.components import registry
    from kernelrl_plugin_modal import kernelrl_evaluators

    missing = registry().missing(kernelrl_evaluators()[0], config)
    if missing:
        raise MissingPrerequisite(
            "\n".join(f"missing: {item.what}" for item in missing),
            fix="; ".join(item.fix for item in missing),
            see="modal",
        )

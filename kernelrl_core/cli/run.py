"""`kernelrl run`: train a policy with a recipe."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from kernelrl_core.cli.detach import detach as detach_now
from kernelrl_core.cli.output import print_json, print_lines, show_warnings, table
from kernelrl_core.cli.run_result import print_result
from kernelrl_core.cli.training import train
from kernelrl_core.errors import UsageError
from kernelrl_core.planning.duration import duration_text, expected_duration, header_entries
from kernelrl_core.planning.load import LoadedRecipe, differences_from_base, load_recipe
from kernelrl_core.planning.plan import example_prompt, plan, plan_notes, plan_rows
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import default_name, named_path
from kernelrl_core.runs.summary import tested_parts
from kernelrl_core.training.starting import continued_recipe, create_run, existing_run, extended_run, lock_to_continue


@click.command("run")
@click.argument("recipe")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--name", help="Name of the run directory below ./runs. Default: recipe name and time stamp.")
@click.option("--exist-ok", is_flag=True, help="If the run exists, continue it; if it is finished, print its result.")
@click.option("--extend", is_flag=True, help="Continue the finished run --name up to a higher train.steps.")
@click.option(
    "--from",
    "origin",
    metavar="RUN[@CHECKPOINT]",
    help="Begin with the weights of another run's checkpoint (its step count; default: the last one) and a new "
    "optimizer state.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print size, cost and missing prerequisites; start nothing. Exit code 2 for an invalid recipe, else 0.",
)
@click.option("--detach", is_flag=True, help="Continue without this terminal when the run has started; see its log.")
@click.option("--show-prompt", is_flag=True, help="With --dry-run: also print the prompt of the first task.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
@click.pass_context
def command(
    context: click.Context,
    recipe: str,
    overrides: tuple[str, ...],
    name: str | None,
    exist_ok: bool,
    extend: bool,
    origin: str | None,
    dry_run: bool,
    detach: bool,
    show_prompt: bool,
    as_json: bool,
) -> None:
    """Train a policy with RECIPE: a path, or the name of a recipe in ./recipes or of a bundled one.

    KEY=VALUE override recipe keys; 'kernelrl schema' lists them. The run is saved in ./runs/NAME. Ctrl-C stops it after
    the current step; 'kernelrl resume' continues it.

    \b
    Examples:
      kernelrl run quickstart
      kernelrl run quickstart --name first train.steps=10 rewards.correct.weight=0.5
      kernelrl run quickstart --detach
      kernelrl run quickstart --dry-run --show-prompt
      kernelrl run quickstart --name first --extend train.steps=20 rewards.correct.weight=0.5
      kernelrl run quickstart --from first@5 train.learning_rate=1e-5
    """
    loaded = load_recipe(recipe, overrides, registry=registry())
    show_warnings(loaded, trains=True)
    named = named_path(name) if name is not None else None
    if extend + exist_ok + (origin is not None) > 1:
        raise UsageError("--extend, --exist-ok and --from exclude each other")
    if extend and name is None:
        raise UsageError("--extend needs the --name of the finished run")
    if show_prompt and not dry_run:
        raise UsageError(
            "--show-prompt needs --dry-run", fix=f"kernelrl run {shlex.quote(recipe)} --dry-run --show-prompt"
        )
    if detach and dry_run:
        raise UsageError("--detach and --dry-run exclude each other")
    if dry_run:
        _show_plan(loaded, show_prompt=show_prompt, as_json=as_json)
        return
    detached = detach_now(as_json=as_json) if detach else None
    path = named or Path("runs") / default_name(loaded.name)
    existing = existing_run(path, loaded, registry()) if exist_ok else None
    if extend:
        run = extended_run(path, loaded, registry())
    else:
        run = existing or create_run(path, loaded, registry(), overrides=overrides, origin=origin)
    click.echo(f"run: {run.path}", err=as_json)
    if existing is not None and not lock_to_continue(run, registry()):
        print_result(run, as_json=as_json)
        return
    continues = extend or existing is not None
    code = train(run, continued_recipe(run, registry()) if continues else loaded, detached)
    print_result(run, as_json=as_json)
    if header_entries(loaded.sources[-1])["tests"] and not continues and not as_json:
        print_lines(["", *table(tested_parts(run, loaded.recipe))])
    context.exit(code)


def _show_plan(loaded: LoadedRecipe, *, show_prompt: bool, as_json: bool) -> None:
    facts = plan(loaded.name, loaded.recipe, registry())
    facts |= expected_duration(loaded.resolved, facts) | {"differs": differences_from_base(loaded, registry())}
    messages = example_prompt(loaded.recipe, registry()) if show_prompt else ()
    if as_json:
        prompt = [{"role": message.role, "content": message.content} for message in messages]
        print_json(facts | ({"prompt": prompt} if show_prompt else {}))
        return
    duration = duration_text(facts, header_entries(loaded.sources[-1])["costs"])
    print_lines([*table([*plan_rows(facts), ("duration", duration)]), *plan_notes(facts)])
    for message in messages:
        print_lines(["", f"[{message.role}]", message.content])

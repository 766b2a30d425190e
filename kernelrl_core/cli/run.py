"""`kernelrl run`: train a policy with a recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kernelrl_core.cli.output import print_json, print_lines, print_result, table

if TYPE_CHECKING:
    from kernelrl_core.planning.load import LoadedRecipe

_INSTALLATION_TEST = "smoke"
"""Recipe whose run ends with the list of the parts that worked."""


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
    from kernelrl_core.cli.validate import show_warnings
    from kernelrl_core.errors import UsageError
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.plugins.registry import registry

    loaded = load_recipe(recipe, overrides, registry=registry())
    show_warnings(loaded)
    if name is not None and (Path(name).name != name or name[0] in ".-"):
        raise UsageError(f"--name {name!r} must be a directory name without path separators, leading dot or hyphen")
    if extend + exist_ok + (origin is not None) > 1:
        raise UsageError("--extend, --exist-ok and --from exclude each other")
    if extend and name is None:
        raise UsageError("--extend needs the --name of the finished run")
    if show_prompt and not dry_run:
        raise UsageError("--show-prompt needs --dry-run", fix=f"kernelrl run {recipe} --dry-run --show-prompt")
    if detach and dry_run:
        raise UsageError("--detach and --dry-run exclude each other")
    if dry_run:
        _show_plan(loaded, show_prompt=show_prompt, as_json=as_json)
        return

    from kernelrl_core.cli.detach import detach as detach_now
    from kernelrl_core.cli.resume import continue_run, execute, train_on
    from kernelrl_core.planning.plan import preflight
    from kernelrl_core.runs.directory import RunDir, default_name, find_run
    from kernelrl_core.runs.provenance import provenance
    from kernelrl_core.training.continuation import choose_origin, differences, extend_run, run_recipe

    detached = detach_now(as_json=as_json) if detach else None
    run = RunDir(Path("runs") / (name or default_name(loaded.name)))
    if extend:
        run = find_run(str(run.path))
        run.lock()
        extend_run(run, loaded, registry())
        click.echo(f"run: {run.path}", err=as_json)
        train_on(context, run, as_json=as_json, detached=detached)
        return
    if exist_ok and (run.path / "provenance.json").exists() and not run.blank():
        if changed := differences(run_recipe(run, registry()).resolved, loaded.resolved):
            raise UsageError(
                f"run {run.path} was started with another recipe; it differs in {', '.join(changed)}",
                fix=f"kernelrl resume {run.path}, choose another --name, or raise train.steps of the finished run with "
                "--extend in place of --exist-ok",
                see="run-changed",
            )
        click.echo(f"run: {run.path}", err=as_json)
        continue_run(context, run, as_json=as_json, detached=detached)
        return
    begins = choose_origin(origin, loaded.recipe.policy.use) if origin is not None else None
    if not run.path.exists() or run.blank():
        preflight(loaded.recipe, registry())
    details = provenance(loaded.recipe, registry(), sources=loaded.sources, overrides=overrides)
    if begins is not None:
        details["origin"] = begins.provenance()
    run = RunDir.create(run.path, loaded.resolved, details, begins.files if begins is not None else None)
    click.echo(f"run: {run.path}", err=as_json)
    code = execute(run, loaded, detached)
    print_result(run, as_json=as_json)
    if loaded.name == _INSTALLATION_TEST and not as_json:
        from kernelrl_core.runs.summary import tested_parts

        print_lines(["", *table(tested_parts(run, loaded.recipe))])
    context.exit(code)


def _show_plan(loaded: LoadedRecipe, *, show_prompt: bool, as_json: bool) -> None:
    from kernelrl_core.planning.duration import duration_text, expected_duration, header_entries
    from kernelrl_core.planning.plan import example_prompt, plan, plan_notes, plan_rows
    from kernelrl_core.plugins.registry import registry

    facts = plan(loaded.name, loaded.recipe, registry())
    facts |= expected_duration(loaded.resolved, facts)
    messages = example_prompt(loaded.recipe, registry()) if show_prompt else ()
    if as_json:
        prompt = [{"role": message.role, "content": message.content} for message in messages]
        print_json(facts | ({"prompt": prompt} if show_prompt else {}))
        return
    duration = duration_text(facts, header_entries(loaded.sources[-1])["costs"])
    print_lines([*table([*plan_rows(facts), ("duration", duration)]), *plan_notes(facts)])
    for message in messages:
        print_lines(["", f"[{message.role}]", message.content])

"""`kernelrl eval`: measure a policy or a checkpoint on a split."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.plugins.registry import Registry


@click.command("eval")
@click.argument("recipe_or_run")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--checkpoint", help="Checkpoint of a run: its number, or 'last' (default), or 'base' for the start.")
@click.option("--split", help="Split to evaluate; the recipe's eval.split when left out.")
@click.option("--samples", type=click.IntRange(min=1), help="Attempts at each task; the recipe's when left out.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature; the recipe's when left out.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write everything to a JSON file; interrupted, the next call goes on.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON document.")
def command(
    recipe_or_run: str,
    overrides: tuple[str, ...],
    checkpoint: str | None,
    split: str | None,
    samples: int | None,
    temperature: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Measure RECIPE_OR_RUN: the untrained policy of a recipe, or a checkpoint of a run.

    A sample is a whole attempt, however many turns it takes. An untrained policy has had its warm start, if
    its recipe has one.

    \b
    Examples:
      kernelrl eval runs/quickstart --samples 4
      kernelrl eval quickstart --split held_out --output base.json
    """
    from kernelrl_core.heldout.evaluate import evaluate_job
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.storage import disk_error, write_atomically

    job = choose_job(recipe_or_run, overrides, checkpoint, registry=registry())
    job = job.with_settings(split=split, samples=samples, temperature=temperature)
    if output is not None and not output.absolute().parent.is_dir():
        from kernelrl_core.errors import UsageError

        raise UsageError(f"--output {output}: there is no directory {output.absolute().parent}")
    click.echo(f"evaluating {job.label} on split {job.recipe.eval.split!r}", err=True)
    partial = output.with_name(f"{output.name}.partial") if output is not None else None
    report = _run(evaluate_job(job, partial))
    if output is not None and partial is not None:
        try:
            write_atomically(output, json.dumps(report, indent=1) + "\n")
        except OSError as error:
            raise disk_error(output, error) from error
        partial.unlink()
        click.echo(f"written: {output}", err=True)
    flat = {key: value for key, value in report.items() if key not in ("rows", "provenance")}
    if as_json:
        print_json(flat)
    else:
        print_lines(_lines(flat))


def choose_job(
    name: str, overrides: Sequence[str] = (), checkpoint: str | None = None, *, registry: Registry
) -> EvalJob:
    """The job that a recipe or a run names. A path says which; a bare name is a recipe, unless only a run has it.

    Raises:
        LookupFailed: neither exists, or the run lacks the checkpoint.
        UsageError: the recipe is invalid, or `checkpoint` goes with a recipe.
    """
    from kernelrl_core.errors import LookupFailed, UsageError
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.runs.checkpoints import choose_checkpoint
    from kernelrl_core.runs.directory import find_run

    is_run = (Path(name) / "recipe.yaml").is_file() or checkpoint is not None
    if not is_run:
        try:
            loaded = load_recipe(name, overrides, registry=registry)
        except UsageError as error:
            if not (Path("runs") / name / "recipe.yaml").is_file():
                if isinstance(error, LookupFailed):
                    raise LookupFailed(f"no run {name!r}, and {error.message}", fix=error.fix) from None
                raise
        else:
            label = f"the untrained policy of recipe {loaded.name!r}"
            return EvalJob(loaded.recipe, registry, label, resolved=loaded.resolved)
    run = find_run(name)
    loaded = load_recipe(str(run.path / "recipe.yaml"), overrides, registry=registry)
    if checkpoint == "base":
        return EvalJob(loaded.recipe, registry, f"the untrained policy of run {run.path}", run, loaded.resolved)
    row = choose_checkpoint(run.rows("checkpoints"), run.checkpoints, checkpoint or "last")
    return EvalJob(loaded.recipe, registry, f"checkpoint {row['name']} of run {run.path}", run, loaded.resolved, row)


def _run(evaluation: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    from kernelrl_core.plugins.boundary import first_error

    try:
        return asyncio.run(evaluation)
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _lines(report: dict[str, Any]) -> list[str]:
    reasons = report["reasons"]
    rows = []
    for key, value in report.items():
        if key in ("reasons", "outcomes"):
            continue
        rows.append((key, f"– ({reasons[key]})" if value is None and key in reasons else _shown(value)))
    counts = ", ".join(f"{name} {count}" for name, count in report["outcomes"].items() if count)
    return table([*rows, ("outcomes", counts)])


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return " – ".join(_shown(item) for item in value)
    return "–" if value is None else str(value)

"""`kernelrl eval`: measure a policy or a checkpoint on a split."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernelrl_core.cli.output import print_json, print_lines, require_output, table

if TYPE_CHECKING:
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.plugins.registry import Registry
    from kernelrl_core.training.late_evaluation import RunLoggers

_T = TypeVar("_T")


@click.command("eval")
@click.argument("recipe_or_run")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--checkpoint", help="Checkpoint of the run: its step count, 'last' (default), or 'base' for the untrained policy."
)
@click.option("--split", help="Split to evaluate. Default: eval.split of the recipe.")
@click.option("--samples", type=click.IntRange(min=1), help="Episodes per task. Default: eval.samples of the recipe.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature. Default: that of the recipe.")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSON file for results and samples. After an interruption, the same command continues.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing --output file.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as one JSON document.")
@click.option("--log-to", metavar="RUN", help="Send the results to the loggers of this run.")
@click.option(
    "--step", type=click.IntRange(min=0), help="With --log-to: steps before the evaluation. Default: the checkpoint's."
)
def command(
    recipe_or_run: str,
    overrides: tuple[str, ...],
    checkpoint: str | None,
    split: str | None,
    samples: int | None,
    temperature: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    log_to: str | None,
    step: int | None,
) -> None:
    """Measure a policy on a held-out split: pass@k, fast_p, speedup, outcomes.

    RECIPE_OR_RUN is a recipe, whose untrained policy is measured, or a run directory, of which a checkpoint is
    measured. A warm start of the recipe counts as part of the untrained policy. KEY=VALUE override recipe keys. A run
    is measured with the index that its retriever had, unless an override names another one.

    \b
    Examples:
      kernelrl eval runs/quickstart --samples 4
      kernelrl eval quickstart --split held_out --output base.json
      kernelrl eval runs/quickstart --checkpoint 40 --log-to quickstart
    """
    from kernelrl_core.heldout.evaluate import evaluate_job
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.storage import disk_error, write_atomically

    loggers = _loggers(log_to, step)
    options = {"split": split, "samples": samples, "temperature": temperature}
    overrides += tuple(f"eval.{key}={json.dumps(value)}" for key, value in options.items() if value is not None)
    job = choose_job(recipe_or_run, overrides, checkpoint, registry=registry())
    if output is not None:
        require_output(output, force=force)
    click.echo(f"evaluating {job.label} on split {job.recipe.eval.split!r}", err=True)
    partial = output.with_name(f"{output.name}.partial") if output is not None else None
    report = run_job(evaluate_job(job, partial))
    if output is not None and partial is not None:
        try:
            write_atomically(output, json.dumps(report, indent=1) + "\n")
        except OSError as error:
            raise disk_error(output, error) from error
        partial.unlink()
        click.echo(f"written: {output}", err=True)
    if loggers is not None:
        at = job.steps if step is None else step
        loggers.send(report, at)
        click.echo(f"sent to {', '.join(loggers.names)} of run {log_to}, at step {at}", err=True)
    flat = {key: value for key, value in report.items() if key not in ("rows", "provenance")}
    if as_json:
        print_json(flat)
    else:
        print_lines(_lines(flat))


def _loggers(log_to: str | None, step: int | None) -> RunLoggers | None:
    """The loggers that get the results. Raises as `RunLoggers`, and UsageError for --step alone."""
    from kernelrl_core.errors import UsageError
    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.training.late_evaluation import RunLoggers

    if log_to is not None:
        return RunLoggers(find_run(log_to), registry())
    if step is not None:
        raise UsageError("--step has no effect without --log-to", fix="add --log-to RUN")
    return None


def choose_job(
    name: str, overrides: Sequence[str] = (), checkpoint: str | None = None, *, registry: Registry
) -> EvalJob:
    """The held-out evaluation of a recipe or a run. A bare name is a recipe, unless only a run has that name.

    Raises:
        LookupFailed: neither exists, or the run lacks the checkpoint.
        UsageError: the recipe is invalid, or the retriever searches other data than the run did, and no override
            changes the retriever.
    """
    from kernelrl_core.cli.validate import show_warnings
    from kernelrl_core.errors import LookupFailed, UsageError
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.planning.load import load_recipe
    from kernelrl_core.runs.checkpoints import choose_checkpoint
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.provenance import retriever_identity
    from kernelrl_core.training.continuation import run_recipe

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
            show_warnings(loaded)
            label = f"the untrained policy of recipe {loaded.name!r}"
            return EvalJob(loaded.recipe, registry, label, resolved=loaded.resolved)
    run = find_run(name)
    loaded = run_recipe(run, registry, overrides)
    show_warnings(loaded)
    if not any(re.match(r"retriever[.=]", override) for override in overrides):
        same = retriever_identity(loaded.recipe, registry) == run.provenance().get("retriever", {})
        if not same:
            raise UsageError(
                f"the retriever searches other data than when run {run.path} started",
                fix="restore that index, or name another one: retriever.index=DIR",
            )
    if checkpoint == "base":
        return EvalJob(loaded.recipe, registry, f"the untrained policy of run {run.path}", run, loaded.resolved)
    try:
        row = choose_checkpoint(run, checkpoint or "last")
    except LookupFailed as error:
        error.fix += "; --checkpoint base is the untrained policy" if not run.rows("checkpoints") else ""
        raise
    return EvalJob(loaded.recipe, registry, f"checkpoint {row['name']} of run {run.path}", run, loaded.resolved, row)


def run_job(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a job, or its first error."""
    from kernelrl_core.plugins.boundary import first_error

    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def _lines(report: dict[str, Any]) -> list[str]:
    reasons = report["reasons"]
    absent: dict[str, list[str]] = {}
    rows = []
    for key, value in report.items():
        if value is None and key in reasons:
            absent.setdefault(reasons[key], []).append(key)
        elif key not in ("reasons", "outcomes"):
            rows.append((key, _shown(value)))
    counts = ", ".join(f"{name} {count}" for name, count in report["outcomes"].items() if count)
    return [*table([*rows, ("outcomes", counts)]), *(f"no {', '.join(keys)}: {why}" for why, keys in absent.items())]


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, list):
        return " – ".join(_shown(item) for item in value)
    return "–" if value is None else str(value)

"""`kernelrl eval`: measure a policy or a checkpoint on a split."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kernelrl_core.cli.output import print_json, print_lines, require_output

if TYPE_CHECKING:
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.plugins.registry import Registry
    from kernelrl_core.runs.directory import RunDir
    from kernelrl_core.training.late_evaluation import RunLoggers

_T = TypeVar("_T")


@click.command("eval")
@click.argument("recipe_or_run")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    help="Checkpoint of the run: its step count, 'last' (default), or 'base' for the untrained policy. Repeatable.",
)
@click.option(
    "--kernels", help="Evaluate existing kernels in place of a policy: a directory, a run, or an earlier --output file."
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
@click.option("--format", "form", type=click.Choice(["md", "csv"]), help="Print the results as Markdown or CSV.")
@click.option("--log-to", metavar="RUN", help="Send the results to the loggers of this run.")
@click.option(
    "--step", type=click.IntRange(min=0), help="With --log-to: steps before the evaluation. Default: the checkpoint's."
)
def command(
    recipe_or_run: str,
    overrides: tuple[str, ...],
    checkpoints: tuple[str, ...],
    kernels: str | None,
    split: str | None,
    samples: int | None,
    temperature: float | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    form: str | None,
    log_to: str | None,
    step: int | None,
) -> None:
    """Measure a policy on a held-out split: pass@k, fast_p, speedup, outcomes, by level, turn and budget.

    RECIPE_OR_RUN is a recipe, whose untrained policy is measured, or a run directory, of which a checkpoint is
    measured. A warm start of the recipe counts as part of the untrained policy. KEY=VALUE override recipe keys. A run
    is measured with the index that its retriever had, unless an override names another one.

    With --kernels no policy is started: the kernels are evaluated as they are, with the tasks and the evaluation keys
    of the recipe, for example on another GPU or with stricter settings. Without --split, tasks of all splits count.

    \b
    Examples:
      kernelrl eval runs/quickstart --samples 4
      kernelrl eval runs/quickstart --checkpoint base --checkpoint last --output both.json
      kernelrl eval quickstart --split held_out --output base.json
      kernelrl eval quickstart --kernels base.json evaluation.trials=20
      kernelrl eval kernelbench_cuda.yaml --kernels KernelBench/runs/my_run --output judged.json
      kernelrl eval runs/quickstart --checkpoint 40 --log-to quickstart
    """
    from kernelrl_core.cli.eval_kernels import refuse_policy_options, with_kernels
    from kernelrl_core.errors import UsageError
    from kernelrl_core.heldout.evaluate import evaluate_job
    from kernelrl_core.plugins.registry import registry

    if as_json and form is not None:
        raise UsageError("--json and --format exclude each other", fix="choose one of them")
    if kernels is not None:
        given = {"--checkpoint": checkpoints or None, "--samples": samples, "--temperature": temperature}
        refuse_policy_options(given)
    loggers = _loggers(log_to, step)
    options = {"split": split, "samples": samples, "temperature": temperature}
    overrides += tuple(f"eval.{key}={json.dumps(value)}" for key, value in options.items() if value is not None)
    jobs = choose_jobs(recipe_or_run, overrides, checkpoints, registry=registry())
    if kernels is not None:
        jobs = [with_kernels(jobs[0], kernels, split)]
    if output is not None:
        require_output(output, force=force)
    reports, partials = [], []
    for job in jobs:
        click.echo(f"evaluating {job.label} on split {job.recipe.eval.split!r}", err=True)
        if output is not None:
            partials.append(_partial(output, job, several=len(jobs) > 1))
        reports.append(run_job(evaluate_job(job, partials[-1] if partials else None)))
    if output is not None:
        _write(output, reports)
        for partial in partials:
            partial.unlink()
        click.echo(f"written: {output}", err=True)
    if loggers is not None:
        for job, report in zip(jobs, reports, strict=True):
            at = job.steps if step is None else step
            loggers.send(report, at)
            click.echo(f"sent to {', '.join(loggers.names)} of run {log_to}, at step {at}", err=True)
    _print(reports, "json" if as_json else form)


def _partial(output: Path, job: EvalJob, *, several: bool) -> Path:
    """The file of the finished turns of an evaluation, from which the same command continues."""
    part = "" if not several else f".{job.checkpoint['name'] if job.checkpoint is not None else 'base'}"
    return output.with_name(f"{output.name}{part}.partial")


def _write(output: Path, reports: Sequence[dict[str, Any]]) -> None:
    from kernelrl_core.storage import disk_error, write_atomically

    document = reports[0] if len(reports) == 1 else {"evaluations": reports}
    try:
        write_atomically(output, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise disk_error(output, error) from error


def _print(reports: Sequence[dict[str, Any]], form: str | None) -> None:
    from kernelrl_core.cli.eval_report import csv_text, flat, markdown_lines, text_lines

    if form == "json":
        documents = [flat(report) for report in reports]
        print_json(documents[0] if len(documents) == 1 else {"evaluations": documents})
    elif form == "csv":
        click.echo(csv_text(reports), nl=False)
    else:
        print_lines((markdown_lines if form == "md" else text_lines)(reports))


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
    """The held-out evaluation of a recipe or of one checkpoint of a run; see `choose_jobs`."""
    return choose_jobs(name, overrides, () if checkpoint is None else (checkpoint,), registry=registry)[0]


def choose_jobs(
    name: str, overrides: Sequence[str] = (), checkpoints: Sequence[str] = (), *, registry: Registry
) -> list[EvalJob]:
    """The held-out evaluations of a recipe or a run. A bare name is a recipe, unless only a run has that name.

    Args:
        checkpoints: of the run; none: the last one. A checkpoint that is named twice is evaluated once.

    Raises:
        LookupFailed: neither exists, or the run lacks a checkpoint.
        UsageError: the recipe is invalid, or the retriever searches other data than the run did, and no override
            changes the retriever.
    """
    from kernelrl_core.cli.validate import show_warnings
    from kernelrl_core.errors import LookupFailed, UsageError, suggestion
    from kernelrl_core.heldout.evaluate import EvalJob
    from kernelrl_core.planning.load import load_recipe, recipes
    from kernelrl_core.runs.directory import find_run, list_runs
    from kernelrl_core.runs.provenance import retriever_identity
    from kernelrl_core.training.continuation import run_recipe

    is_run = (Path(name) / "recipe.yaml").is_file() or bool(checkpoints)
    if not is_run:
        try:
            loaded = load_recipe(name, overrides, registry=registry)
        except UsageError as error:
            if not (Path("runs") / name / "recipe.yaml").is_file():
                if isinstance(error, LookupFailed):
                    known = {*recipes(), *(run.name for run in list_runs())}
                    raise LookupFailed(
                        f"no run or recipe {name!r}; {suggestion(Path(name).stem, known)}",
                        fix="kernelrl recipes list, kernelrl runs list",
                    ) from None
                raise
        else:
            show_warnings(loaded)
            label = f"the untrained policy of recipe {loaded.name!r}"
            return [EvalJob(loaded.recipe, registry, label, resolved=loaded.resolved)]
    run = find_run(name)
    loaded = run_recipe(run, registry, overrides)
    show_warnings(loaded)
    if not any(re.match(r"retriever[.=]", override) for override in overrides):
        same = retriever_identity(loaded.recipe, registry) == run.provenance().get("retriever", {})
        if not same:
            raise UsageError(
                f"the retriever searches other data than when run {run.path} started",
                fix="restore that index, or name another one: retriever.index=DIR",
                see="inputs-changed",
            )
    rows = [_checkpoint_row(run, checkpoint) for checkpoint in checkpoints or ("last",)]
    labels = {
        f"the untrained policy of run {run.path}" if row is None else f"checkpoint {row['name']} of run {run.path}": row
        for row in rows
    }
    return [EvalJob(loaded.recipe, registry, label, run, loaded.resolved, row) for label, row in labels.items()]


def _checkpoint_row(run: RunDir, checkpoint: str) -> Mapping[str, Any] | None:
    """The row of a checkpoint; None for `base`, the untrained policy.

    Raises:
        LookupFailed: the run lacks the checkpoint.
    """
    from kernelrl_core.errors import LookupFailed
    from kernelrl_core.runs.checkpoints import choose_checkpoint

    if checkpoint == "base":
        return None
    try:
        return choose_checkpoint(run, checkpoint, also=("base",))
    except LookupFailed as error:
        error.fix += "; --checkpoint base is the untrained policy" if not run.rows("checkpoints") else ""
        raise


def run_job(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a job, or its first error."""
    from kernelrl_core.plugins.boundary import first_error

    try:
        return asyncio.run(work)
    except BaseExceptionGroup as group:
        raise first_error(group) from group

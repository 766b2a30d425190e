"""`kernelrl eval`: measure a policy or a checkpoint on a split."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, require_output, show_warnings
from kernelrl_core.errors import ExitCode, UsageError
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import find_run
from kernelrl_experiments.eval_jobs import choose_jobs, with_kernels
from kernelrl_experiments.eval_report import csv_text, flat, kernel_lines, markdown_lines, text_lines
from kernelrl_experiments.evaluate import evaluate_jobs
from kernelrl_experiments.late_evaluation import RunLoggers


@click.command("eval")
@click.argument("recipe_or_run")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--checkpoint",
    "checkpoints",
    multiple=True,
    help="Checkpoint of the run: its step count, 'last' (default), 'best' (train.keep_best), or 'base', the untrained "
    "policy. Repeatable.",
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
@click.pass_context
def command(
    context: click.Context,
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

    With --kernels no policy is started, and the recipe needs none: the kernels are evaluated as they are, with the
    tasks and the evaluation keys of the recipe, for example on another GPU or with stricter settings. Without --split,
    tasks of all splits count. A folder or YAML file is a suite, as of 'kernelrl check --suite': a table lists its
    kernels, and the exit code is 1 unless all are correct and clean.

    \b
    Examples:
      kernelrl eval runs/quickstart --samples 4
      kernelrl eval runs/quickstart --checkpoint base --checkpoint last --output both.json
      kernelrl eval quickstart --split held_out --output base.json
      kernelrl eval quickstart --kernels base.json evaluation.trials=20
      kernelrl eval kernelbench_cuda.yaml --kernels KernelBench/runs/my_run --output judged.json
      kernelrl eval runs/quickstart --checkpoint 40 --log-to quickstart
    """
    if as_json and form is not None:
        raise UsageError("--json and --format exclude each other", fix="choose one of them")
    if step is not None and log_to is None:
        raise UsageError("--step has no effect without --log-to", fix="add --log-to RUN")
    if kernels is not None:
        given = {"--checkpoint": checkpoints or None, "--samples": samples, "--temperature": temperature}
        _refuse_policy_options(given)
    loggers = RunLoggers(find_run(log_to), registry()) if log_to is not None else None
    options = {"split": split, "samples": samples, "temperature": temperature}
    overrides += tuple(f"eval.{key}={json.dumps(value)}" for key, value in options.items() if value is not None)
    jobs = choose_jobs(
        recipe_or_run, overrides, checkpoints, registry=registry(), show=show_warnings, needs_policy=kernels is None
    )
    if kernels is not None:
        jobs = [with_kernels(jobs[0], kernels, split)]
        for note in jobs[0].existing.notes if jobs[0].existing is not None else ():
            _say(note)
    if output is not None:
        require_output(output, force=force)
    reports = evaluate_jobs(jobs, output, _say)
    if loggers is not None:
        for job, report in zip(jobs, reports, strict=True):
            at = job.steps if step is None else step
            loggers.send(report, at)
            _say(f"sent to {', '.join(loggers.names)} of run {log_to}, at step {at}")
    _print(reports, "json" if as_json else form)
    existing = jobs[0].existing
    if existing is not None and existing.files:
        rows = reports[0]["rows"]
        if not as_json and form is None:
            print_lines(["", *kernel_lines(rows, existing.files)])
        is_clean = all(row["outcome"] == "correct" and row["verdict"] == "clean" for row in rows)
        context.exit(ExitCode.OK if is_clean else ExitCode.FAILED)


def _refuse_policy_options(options: Mapping[str, Any]) -> None:
    """
    Args:
        options: the options that only a policy has, with their values.

    Raises:
        UsageError: one of them is given.
    """
    for name, value in options.items():
        if value is not None:
            raise UsageError(f"{name} is for a policy, and --kernels starts none", fix=f"remove {name} or --kernels")


def _say(line: str) -> None:
    click.echo(line, err=True)


def _print(reports: Sequence[dict[str, Any]], form: str | None) -> None:
    if form == "json":
        documents = [flat(report) for report in reports]
        print_json(documents[0] if len(documents) == 1 else {"evaluations": documents})
    elif form == "csv":
        click.echo(csv_text(reports), nl=False)
    else:
        print_lines((markdown_lines if form == "md" else text_lines)(reports))

"""`kernelrl sample`: sample kernels for one task and evaluate them."""

from __future__ import annotations

import click

from kernelrl_core.cli.output import print_json, print_lines, show_warnings
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.rows import sample_row
from kernelrl_core.tasks.lookup import find_task, source_for
from kernelrl_core.types import Turn
from kernelrl_experiments.eval_jobs import choose_job
from kernelrl_experiments.evaluate import run_job, sample_task


@click.command("sample")
@click.argument("recipe_or_run")
@click.argument("task")
@click.argument("overrides", nargs=-1, metavar="[KEY=VALUE]...")
@click.option(
    "--checkpoint",
    help="Checkpoint of the run: its step count, 'last' (default), 'best' (train.keep_best), or 'base', the untrained "
    "policy.",
)
@click.option("-n", "episodes", type=click.IntRange(min=1), default=4, show_default=True, help="Number of episodes.")
@click.option("--temperature", type=click.FloatRange(min=0), help="Sampling temperature. Default: that of the recipe.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    recipe_or_run: str,
    task: str,
    overrides: tuple[str, ...],
    checkpoint: str | None,
    episodes: int,
    temperature: float | None,
    as_json: bool,
) -> None:
    """Sample replies of a policy for TASK, evaluate them, and print code and outcome of each turn.

    RECIPE_OR_RUN is a recipe, whose untrained policy samples, or a run directory, of which a checkpoint samples. TASK
    is a task id or a file in KernelBench's format. KEY=VALUE override recipe keys. Equal calls sample equal replies,
    if the policy is deterministic; a larger -n adds others.

    \b
    Examples:
      kernelrl sample runs/quickstart starter/2/softmax
      kernelrl sample runs/quickstart starter/2/softmax --checkpoint base -n 1 --json
    """
    if temperature is not None:
        overrides += (f"eval.temperature={temperature}",)
    job = choose_job(recipe_or_run, overrides, checkpoint, registry=registry(), show=show_warnings)
    source = source_for(task, job.recipe.tasks, registry())
    found = find_task(task, registry=registry(), source=source)
    click.echo(f"sampling from {job.label}", err=True)
    turns = [turn for episode in run_job(sample_task(job, found, episodes)) for turn in episode.turns]
    if as_json:
        print_json({"policy": job.label, "task": found.id, "samples": [sample_row(turn) for turn in turns]})
        return
    for turn in turns:
        print_lines([*_lines(turn, several=job.recipe.episode.turns > 1), ""])
    click.echo(f"{sum(turn.correct for turn in turns)} of {len(turns)} correct", err=True)


def _lines(turn: Turn, *, several: bool) -> list[str]:
    place = f"episode {turn.id.attempt + 1}" + (f", turn {turn.id.turn + 1}" if several else "")
    speedup = f"; speedup {turn.speedup:.2f}" if turn.speedup is not None else ""
    code = turn.candidate.source if turn.candidate is not None else turn.reply.text
    findings = [f"finding: {found.rule} ({found.severity.value}): {found.evidence}" for found in turn.findings]
    head = f"--- {place}: {turn.outcome.value}; verdict {turn.verdict.value}{speedup}"
    return [head, *findings, *turn.message.splitlines(), "", code.rstrip()]

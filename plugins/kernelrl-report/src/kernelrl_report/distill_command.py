"""`kernelrl distill`: export the best training samples of a run as supervised data."""

from __future__ import annotations

from pathlib import Path

import click

from kernelrl_core.api.commands import print_json


@click.command("distill")
@click.argument("run")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    help="JSONL file to write.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--per-task", type=click.IntRange(min=1), default=4, show_default=True, help="Maximum samples per task.")
@click.option("--all", "everything", is_flag=True, help="No maximum per task; --per-task has no effect.")
@click.option("--min-speedup", type=click.FloatRange(min=0), help="Exclude samples that are slower or not measured.")
@click.option("--suspects", is_flag=True, help="Include samples with verdict suspect.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    run: str,
    output: Path,
    force: bool,
    per_task: int,
    everything: bool,
    min_speedup: float | None,
    suspects: bool,
    as_json: bool,
) -> None:
    """Write the best training samples of RUN as conversations, one per line, for supervised training.

    RUN is a run directory or a name below ./runs. Samples must be correct with verdict clean. Each kernel appears once
    per task. Samples are ranked by speedup, then score, then order. Held-out evaluations are never exported.

    To train on the file, set demonstrations.file in a recipe whose policy has a warm start.

    \b
    Examples:
      kernelrl distill runs/quickstart -o best.jsonl
      kernelrl distill runs/fast -o fast.jsonl --per-task 1 --min-speedup 1.2
      kernelrl run quickstart demonstrations.file=best.jsonl
    """
    from kernelrl_core.api.commands import require_output
    from kernelrl_core.api.results import Choice, distill, write_conversations
    from kernelrl_core.api.runs import find_run

    require_output(output, force=force)
    found = distill(find_run(run), Choice(None if everything else per_task, min_speedup, suspects))
    write_conversations(output, found.conversations)
    tasks = len({entry["task_id"] for entry in found.conversations})
    if as_json:
        facts = {"file": str(output), "samples": len(found.conversations), "tasks": tasks}
        print_json({**facts, "left_out": dict(found.left_out)})
        return
    click.echo(f"{output}: {len(found.conversations)} samples from {tasks} tasks")
    for reason, count in sorted(found.left_out.items(), key=lambda item: -item[1]):
        click.echo(f"excluded: {count} {reason}", err=True)

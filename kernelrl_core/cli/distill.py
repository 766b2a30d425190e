"""`kernelrl distill`: a run's best samples as supervised data."""

from __future__ import annotations

from pathlib import Path

import click

from kernelrl_core.cli.output import print_json


@click.command("distill")
@click.argument("run")
@click.option(
    "-o", "--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="File to write, JSONL."
)
@click.option("--per-task", type=click.IntRange(min=1), default=4, show_default=True, help="Best samples of each task.")
@click.option("--all", "everything", is_flag=True, help="All fitting samples of each task, in place of the best.")
@click.option("--min-speedup", type=click.FloatRange(min=0), help="Leave out slower samples, and unmeasured ones.")
@click.option("--suspects", is_flag=True, help="Also samples whose verdict is `suspect`.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON document.")
def command(
    run: str,
    output: Path,
    per_task: int,
    everything: bool,
    min_speedup: float | None,
    suspects: bool,
    as_json: bool,
) -> None:
    """Write the best correct samples of RUN as conversations, one per line, for supervised training.

    Taken are samples of training that are correct and clean, each kernel once per task, the fastest first. A recipe
    learns from the file with demonstrations.file and a policy that warm-starts.

    \b
    Examples:
      kernelrl distill runs/quickstart -o best.jsonl
      kernelrl distill runs/fast -o fast.jsonl --per-task 1 --min-speedup 1.2
      kernelrl run quickstart demonstrations.file=best.jsonl
    """
    from kernelrl_core.errors import UsageError
    from kernelrl_core.prompts.sft_file import write_conversations
    from kernelrl_core.runs.directory import find_run
    from kernelrl_core.runs.distill import Choice, distill

    if not output.absolute().parent.is_dir():
        raise UsageError(f"--output {output}: there is no directory {output.absolute().parent}")
    found = distill(find_run(run), Choice(None if everything else per_task, min_speedup, suspects))
    write_conversations(output, found.conversations)
    tasks = len({entry["task_id"] for entry in found.conversations})
    if as_json:
        facts = {"file": str(output), "samples": len(found.conversations), "tasks": tasks}
        print_json({**facts, "left_out": dict(found.left_out)})
        return
    click.echo(f"{output}: {len(found.conversations)} samples of {tasks} tasks")
    for reason, count in sorted(found.left_out.items(), key=lambda item: -item[1]):
        click.echo(f"left out: {count} {reason}", err=True)

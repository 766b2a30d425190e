"""`kernelrl tasks audit`: find tasks that a shortcut would pass."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kernelrl_core.cli.output import print_json, print_lines, require_writable, table
from kernelrl_core.cli.task_source import layers_of
from kernelrl_core.plugins.registry import registry
from kernelrl_core.types import serialization as codec
from kernelrl_core.types.audits import FLAGS, TaskAudit
from kernelrl_experiments.task_audit import AuditOptions, TaskSelection, audit_tasks


@click.command("audit")
@click.argument("tasks", nargs=-1, metavar="[TASK|KEY=VALUE]...")
@click.option("--recipe", "-r", help="Use task source, tolerances and evaluator of this recipe.")
@click.option("--use", help="Task source, such as starter (default) or kernelbench.")
@click.option("--split", help="Only this split.")
@click.option("--level", type=int, help="Only this level.")
@click.option(
    "--precision",
    type=click.Choice(["task", "fp32", "fp16", "bf16"]),
    help="Audited precision. Default: task, or --recipe.",
)
@click.option("--evaluator", "-e", help="Evaluator component. Default: that of --recipe, or local (this machine).")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="JSONL file to which results are appended.")
@click.option("--jobs", "-j", type=click.IntRange(1), default=1, show_default=True, help="Concurrent audits.")
@click.option(
    "--timeout", type=click.FloatRange(1), default=120.0, show_default=True, help="Time limit per task in seconds."
)
@click.option("--confine", is_flag=True, help="Someone else wrote the tasks: no network, no files of yours.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    tasks: Sequence[str],
    recipe: str | None,
    use: str | None,
    split: str | None,
    level: int | None,
    precision: str | None,
    evaluator: str | None,
    output: Path | None,
    jobs: int,
    timeout: float,
    confine: bool,
    as_json: bool,
) -> None:
    """Find tasks that zeros, a constant or another shortcut would pass.

    The references are executed with your rights, in processes of their own. With --confine these have no network, no
    files and no environment variables of yours. Use it for tasks that you did not write or read.

    TASK is a task id or a file; without one, all tasks of the source are audited. KEY=VALUE set options of the task
    source. Tasks with a result in --output are skipped, so an interrupted audit can be continued. Tasks that could not
    be audited are listed, and retried by the next call.

    \b
    Examples:
      kernelrl tasks audit
      kernelrl tasks audit my_task.py --precision bf16
      kernelrl tasks audit their_task.py --confine
      kernelrl tasks audit --use kernelbench levels=[1,2] --output audits.jsonl --jobs 2
    """
    if output is not None:
        require_writable(output)
    named = [text for text in tasks if "=" not in text or Path(text).is_file()]
    settings = [text for text in tasks if text not in named]
    merged = layers_of(recipe, use, settings)
    selection = TaskSelection(tuple(named), merged, bool(recipe or use or settings), split, level)
    options = AuditOptions(precision, evaluator, output, jobs, timeout, confine)
    audits = asyncio.run(audit_tasks(selection, options, registry(), _report))
    if as_json:
        print_json(_document(audits))
    else:
        print_lines(_lines(audits))


def _report(number: int, audit: TaskAudit) -> None:
    click.echo(f"{number}  {_line(audit)}", err=True)


def _line(audit: TaskAudit) -> str:
    if audit.unaudited is not None:
        return f"{audit.task_id}  unaudited: {audit.unaudited}"
    fixed = f"  fixed by input overlay {audit.mended_by}" if audit.mended_by else ""
    dtypes = f"  ({audit.dtypes})" if audit.dtypes is not None else ""
    return f"{audit.task_id}  {' '.join(audit.flags) or 'clean'}{fixed}{dtypes}"


def _lines(audits: Sequence[TaskAudit]) -> list[str]:
    """The tasks with flags, with evidence, and counts per flag."""
    lines = []
    for audit in audits:
        if audit.flags or audit.unaudited is not None:
            lines.append(_line(audit))
            lines += [f"    {flag}: {evidence}" for flag, evidence in audit.flags.items()]
    ids = {audit.sha256: audit.task_id for audit in audits}
    for audit in audits:
        if equal := [ids[key] for key in audit.equals or () if key in ids]:
            lines.append(f"{audit.task_id}  computes the same as {', '.join(equal)}")
    counts = Counter(flag for audit in audits for flag in audit.flags)
    lines += table([(flag, counts[flag], FLAGS[flag].meaning) for flag in FLAGS], right=(1,))
    return [*lines, _summary(audits)]


def _summary(audits: Sequence[TaskAudit]) -> str:
    unaudited = sum(audit.unaudited is not None for audit in audits)
    flagged = sum(bool(audit.flags) for audit in audits)
    fixed = sum(audit.mended_by is not None for audit in audits)
    clean = len(audits) - unaudited - flagged
    counts = f"{clean} clean, {flagged} flagged ({fixed} fixed by input overlay), {unaudited} unaudited"
    return f"{len(audits)} tasks: {counts}"


def _document(audits: Sequence[TaskAudit]) -> dict[str, Any]:
    counts = Counter(flag for audit in audits for flag in audit.flags)
    return {
        "tasks": [codec.to_json(audit) for audit in audits],
        "counts": dict(counts),
        "unaudited": [audit.task_id for audit in audits if audit.unaudited is not None],
    }

"""`kernelrl tasks audit`: find tasks that a shortcut would pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kernelrl_core.cli.output import print_json, print_lines, require_writable, table
from kernelrl_core.cli.task_source import layers_of

if TYPE_CHECKING:
    from kernelrl_core.plugins.registry import Registry
    from kernelrl_core.types import EvaluationSettings, Task
    from kernelrl_core.types.audits import TaskAudit


@click.command("audit", short_help="Find tasks that a shortcut would pass.")
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
    as_json: bool,
) -> None:
    """Find tasks that zeros, a constant or another shortcut would pass. Executes the references in a sandbox.

    TASK is a task id or a file; without one, all tasks of the source are audited. KEY=VALUE set options of the task
    source. Tasks with a result in --output are skipped, so an interrupted audit can be continued. Tasks that could not
    be audited are listed, and retried by the next call.

    \b
    Examples:
      kernelrl tasks audit
      kernelrl tasks audit my_task.py --precision bf16
      kernelrl tasks audit --use kernelbench levels=[1,2] --output audits.jsonl --jobs 2
    """
    import asyncio

    from kernelrl_core.plugins.registry import registry
    from kernelrl_core.recipe.parts import read_parts
    from kernelrl_core.recipe.schema import Use
    from kernelrl_core.tasks.lookup import find_task, source_for

    if output is not None:
        require_writable(output)
    known = registry()
    named = [text for text in tasks if "=" not in text or Path(text).is_file()]
    options = [text for text in tasks if text not in named]
    parts = read_parts(layers_of(recipe, use, options), ("tasks", "evaluation", "evaluator"), known)
    settings: EvaluationSettings = parts["evaluation"]
    if precision:
        settings = _with_precision(settings, precision)
    chosen = Use(evaluator) if evaluator else parts["evaluator"]
    if named:
        selected = bool(recipe or use or options)
        sources = [source_for(text, parts["tasks"], known) if selected else None for text in named]
        found = [find_task(text, registry=known, source=one) for text, one in zip(named, sources, strict=True)]
    else:
        source = known.make("tasks", parts["tasks"])
        splits = [split] if split else source.splits()
        found = [task for each in splits for task in source.tasks(each) if level in (None, task.level)]
    audits = asyncio.run(_audited(found, settings, chosen, known, output, jobs, timeout))
    if as_json:
        print_json(_document(audits))
    else:
        print_lines(_lines(audits))


async def _audited(
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    chosen: Any,
    registry: Registry,
    output: Path | None,
    jobs: int,
    timeout_s: float,
) -> list[TaskAudit]:
    """Audits of the tasks, in their order; results in the output file are reused."""
    import asyncio

    from kernelrl_core.errors import KernelRLError
    from kernelrl_core.storage import disk_error
    from kernelrl_core.types.audits import append_audit, audit_conditions, audit_key, read_audits

    done: dict[str, TaskAudit] = {}
    if output is not None and output.exists():
        kept = [audit for audit in read_audits(output) if audit.unaudited is None]
        done = {audit_key(audit.sha256, audit.conditions): audit for audit in kept}
    evaluator = registry.make("evaluators", chosen)
    slots = asyncio.Semaphore(jobs)
    finished = 0

    async def one(task: Task) -> TaskAudit:
        nonlocal finished
        own = settings if task.precision is None else _with_precision(settings, task.precision)
        key = audit_key(task.sha256, audit_conditions(own))
        if key in done:
            import attrs

            return attrs.evolve(done[key], task_id=task.id)
        async with slots:
            audit: TaskAudit = await evaluator.audit(task, own, timeout_s)
            if output is not None:
                try:
                    append_audit(output, audit)
                except OSError as error:
                    raise disk_error(output, error) from error
            finished += 1
            click.echo(f"{finished}  {_line(audit)}", err=True)
            return audit

    try:
        await evaluator.start()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(task)) for task in tasks]
        return [task.result() for task in running]
    except* KernelRLError as errors:
        raise errors.exceptions[0] from None
    finally:
        await evaluator.aclose()


def _with_precision(settings: EvaluationSettings, precision: str) -> EvaluationSettings:
    from kernelrl_core.types import serialization as codec

    return codec.from_json(type(settings), {**codec.to_json(settings), "precision": precision})


def _line(audit: TaskAudit) -> str:
    if audit.unaudited is not None:
        return f"{audit.task_id}  unaudited: {audit.unaudited}"
    fixed = f"  fixed by input overlay {audit.mended_by}" if audit.mended_by else ""
    dtypes = f"  ({audit.dtypes})" if audit.dtypes is not None else ""
    return f"{audit.task_id}  {' '.join(audit.flags) or 'clean'}{fixed}{dtypes}"


def _lines(audits: Sequence[TaskAudit]) -> list[str]:
    """The tasks with flags, with evidence, and counts per flag."""
    from kernelrl_core.types.audits import FLAGS

    lines = []
    for audit in audits:
        if audit.flags or audit.unaudited is not None:
            lines.append(_line(audit))
            lines += [f"    {flag}: {evidence}" for flag, evidence in audit.flags.items()]
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
    from kernelrl_core.types import serialization as codec

    counts = Counter(flag for audit in audits for flag in audit.flags)
    return {
        "tasks": [codec.to_json(audit) for audit in audits],
        "counts": dict(counts),
        "unaudited": [audit.task_id for audit in audits if audit.unaudited is not None],
    }

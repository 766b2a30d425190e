"""Audits of tasks by an evaluator: which tasks a shortcut would pass."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.interfaces.evaluators import Evaluator
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.merge import Merged
from kernelrl_core.recipe.parts import read_parts
from kernelrl_core.recipe.schema import Use
from kernelrl_core.storage import disk_error
from kernelrl_core.tasks.lookup import find_task, source_for
from kernelrl_core.types import DOMAIN_OF_OTHERS, EvaluationSettings, Task
from kernelrl_core.types import serialization as codec
from kernelrl_core.types.audits import TaskAudit, append_audit, audit_conditions, audit_key, read_audits

__all__ = ["AuditOptions", "TaskSelection", "audit_tasks", "run_audits"]

Report = Callable[[int, TaskAudit], None]
"""Receives each new audit with the number of audits that are finished."""


@attrs.frozen
class TaskSelection:
    """The tasks to audit, and the keys of the recipe that decides how."""

    named: tuple[str, ...]
    """Ids or files; empty: all tasks of the source."""
    merged: Merged
    """Keys with the task source, `evaluation` and `evaluator`."""
    own_source: bool
    """Whether ids are those of the source in `merged`. Else the first segment of an id names its source."""
    split: str | None = None
    """Only this split of the source."""
    level: int | None = None
    """Only this level of the source."""


@attrs.frozen
class AuditOptions:
    """How tasks are audited."""

    precision: str | None = None
    """In place of `evaluation.precision`."""
    evaluator: str | None = None
    """In place of the evaluator of the recipe."""
    output: Path | None = None
    """JSONL file to which results are appended; tasks with a result in it are not audited again."""
    jobs: int = 1
    """Concurrent audits."""
    timeout_s: float = 120.0
    """Time limit for one task."""
    confine: bool = False
    """Audit the tasks as tasks of others: the process that executes them is confined."""


async def audit_tasks(
    selection: TaskSelection, options: AuditOptions, registry: Registry, report: Report
) -> list[TaskAudit]:
    """The audits of the selected tasks, in their order, with the tasks among them that compute the same.
    Executes the references in the evaluator's sandbox.

    Raises:
        UsageError, LookupFailed: a key is wrong, or a task does not exist.
        MissingPrerequisite: source or evaluator lacks something on this machine.
        KernelRLError: the evaluator failed, or the file cannot be written.
    """
    parts = read_parts(selection.merged, ("tasks", "evaluation", "evaluator"), registry)
    settings: EvaluationSettings = parts["evaluation"]
    if options.precision:
        settings = _with_precision(settings, options.precision)
    tasks = _selected(selection, parts["tasks"], registry)
    if options.confine:
        tasks = [attrs.evolve(task, domain=DOMAIN_OF_OTHERS) for task in tasks]
    use = Use(options.evaluator) if options.evaluator else parts["evaluator"]
    return await run_audits(tasks, settings, registry.make("evaluators", use), options, report)


def _selected(selection: TaskSelection, use: Use, registry: Registry) -> list[Task]:
    if not selection.named:
        source = registry.make("tasks", use)
        splits = [selection.split] if selection.split else source.splits()
        level = selection.level
        return [task for each in splits for task in source.tasks(each) if level in (None, task.level)]
    found = []
    for text in selection.named:
        source_of_text = source_for(text, use, registry) if selection.own_source else None
        found.append(find_task(text, registry=registry, source=source_of_text))
    return found


async def run_audits(
    tasks: Sequence[Task],
    settings: EvaluationSettings,
    evaluator: Evaluator,
    options: AuditOptions,
    report: Report,
) -> list[TaskAudit]:
    """Audits of the tasks, in their order; results in the output file are reused. The evaluator is started and closed.

    Raises:
        KernelRLError: the evaluator failed, or the file cannot be read or written.
    """
    done: dict[str, TaskAudit] = {}
    if options.output is not None and options.output.exists():
        kept = [audit for audit in read_audits(options.output) if audit.unaudited is None]
        done = {audit_key(audit.sha256, audit.conditions): audit for audit in kept}
    slots = asyncio.Semaphore(options.jobs)
    finished = 0

    async def one(task: Task) -> TaskAudit:
        nonlocal finished
        own = settings if task.precision is None else _with_precision(settings, task.precision)
        key = audit_key(task.sha256, audit_conditions(own))
        if key in done:
            return attrs.evolve(done[key], task_id=task.id)
        async with slots:
            audit: TaskAudit = await evaluator.audit(task, own, options.timeout_s)
            if options.output is not None:
                _append(options.output, audit)
            finished += 1
            report(finished, audit)
            return audit

    try:
        await evaluator.start()
        if any(task.domain for task in tasks):
            await evaluator.require_confinement()
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one(task)) for task in tasks]
        audits = [task.result() for task in running]
        if len(audits) > 1 and any(audit.equals is None for audit in audits):
            audits = await _compared(tasks, audits, evaluator, options.output)
        return audits
    except ExceptionGroup as errors:
        # Not `except*`: early releases of Python 3.11 wrap what it raises in a group.
        first = errors.exceptions[0]
        if isinstance(first, KernelRLError):
            raise first from None
        raise
    finally:
        await evaluator.aclose()


async def _compared(
    tasks: Sequence[Task], audits: Sequence[TaskAudit], evaluator: Evaluator, output: Path | None
) -> list[TaskAudit]:
    """The audits with the equal tasks; those that change are appended to the output file once more."""
    equal = await evaluator.equal_tasks(tasks)
    compared = [attrs.evolve(audit, equals=equal.get(audit.sha256, audit.equals)) for audit in audits]
    for before, after in zip(audits, compared, strict=True):
        if output is not None and before.equals != after.equals:
            _append(output, after)
    return compared


def _append(path: Path, audit: TaskAudit) -> None:
    try:
        append_audit(path, audit)
    except OSError as error:
        raise disk_error(path, error) from error


def _with_precision(settings: EvaluationSettings, precision: str) -> EvaluationSettings:
    return codec.from_json(type(settings), {**codec.to_json(settings), "precision": precision})

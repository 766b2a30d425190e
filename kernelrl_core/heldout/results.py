"""Finished held-out evaluations, read from files of `kernelrl eval --output` and from runs.

Reading needs no plugin and no task source, so results of other machines can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import LookupFailed, UsageError
from kernelrl_core.runs.checkpoints import checkpoint_name, kept_checkpoints
from kernelrl_core.runs.directory import RunDir, find_run
from kernelrl_core.runs.results import read_reports
from kernelrl_core.runs.rows import sample_id, turn_without_task
from kernelrl_core.sources.yaml import load_yaml
from kernelrl_core.storage import disk_error
from kernelrl_core.types import Episode, Group, SampleId, Turn

__all__ = ["Result", "common_tasks", "read_results"]


@attrs.frozen
class Result:
    """A finished held-out evaluation."""

    name: str
    """File and policy of the evaluation, or run and step, for people."""
    groups: tuple[Group, ...]
    """The episodes of each task. Tasks have id and level, and no reference."""
    hashes: Mapping[str, str]
    """Task id -> content hash of the task."""
    recipe: Mapping[str, Any] | None
    """The recipe as plain data; None for a file that has none."""
    run: RunDir | None = None
    """Run that made the evaluation during training."""
    steps: int | None = None
    """Steps of `run` before the evaluation."""

    def restricted(self, tasks: Iterable[str]) -> Result:
        """The result on some of its tasks."""
        kept = set(tasks)
        return attrs.evolve(self, groups=tuple(group for group in self.groups if group.task.id in kept))


def read_results(name: str) -> list[Result]:
    """The evaluations of a file of `kernelrl eval --output`, or one of a run: the last one, or with RUN@N the one after
    N steps.

    Raises:
        LookupFailed: there is no such file or run, or the run has no such evaluation.
        UsageError: the file is no output of `kernelrl eval`.
        KernelRLError: a row is damaged or of another version.
    """
    path = Path(name)
    if path.is_file():
        reports = read_reports(path)
        return [
            _result(f"{path}: {report.get('policy', 'kernels')}", report["rows"], report.get("recipe"))
            for report in reports
        ]
    base, at, steps = name.rpartition("@")
    if at and steps.isdecimal() and not path.exists():
        return [_of_run(find_run(base), int(steps))]
    return [_of_run(find_run(name), None)]


def common_tasks(base: Result, changed: Result) -> list[str]:
    """Ids of the tasks that both results have, with the same content, in the order of the first.

    Raises:
        UsageError: there is none.
    """
    found = [task for task, sha256 in base.hashes.items() if changed.hashes.get(task) == sha256]
    if not found:
        same = len(base.hashes.keys() & changed.hashes.keys())
        why = f"{same} tasks have equal ids, but other contents" if same else "no task is in both"
        raise UsageError(
            f"{base.name} and {changed.name} have no common task: {why}",
            fix="evaluate both on the same split of the same tasks",
            see="evaluation-results",
        )
    return found


def _of_run(run: RunDir, steps: int | None) -> Result:
    finished = [row["step"] + 1 for row in run.each_row("metrics") if "eval/num_tasks" in row]
    finished += [0 for row in run.each_row("metrics") if "eval_start/num_tasks" in row]
    if not finished:
        raise LookupFailed(
            f"run {run.path} has no finished held-out evaluation", fix=_evaluation(run, steps), see="evaluation-results"
        )
    chosen = max(finished) if steps is None else steps
    if chosen not in finished:
        known = ", ".join(map(str, sorted(set(finished))))
        raise LookupFailed(
            f"run {run.path} has no held-out evaluation after {chosen} steps; it has those after {known}",
            fix=_evaluation(run, chosen),
            see="evaluation-results",
        )
    rows = (row for row in run.each_row("eval_samples") if row["step"] == chosen)
    path = run.path / "recipe.yaml"
    try:
        recipe = load_yaml(path.read_text(encoding="utf-8"), path)
    except OSError as error:
        raise disk_error(path, error) from error
    found = _result(f"run {run.path} after {chosen} steps", rows, recipe if isinstance(recipe, dict) else None, run)
    return attrs.evolve(found, steps=chosen)


def _evaluation(run: RunDir, steps: int | None) -> str:
    """The command that evaluates the checkpoint after `steps` steps (None: the last one), or another that is left."""
    left = ["base", *kept_checkpoints(run)]
    if steps is None:
        wanted = left[-1]
    else:
        wanted = checkpoint_name(steps) if steps else "base"
    command = "kernelrl eval {run} --checkpoint {checkpoint} --output FILE, then name FILE"
    if wanted in left:
        return command.format(run=run.word, checkpoint=wanted)
    return f"{command.format(run=run.word, checkpoint='C')}; C is one of {', '.join(left)}"


def _result(
    name: str, rows: Iterable[Mapping[str, Any]], recipe: Mapping[str, Any] | None, run: RunDir | None = None
) -> Result:
    # A turn that was lost and sampled again after an interruption has two rows.
    turns: dict[SampleId, Turn] = {}
    hashes: dict[str, str] = {}
    for row in rows:
        turns[sample_id(row)] = turn_without_task(row)
        hashes[row["task_id"]] = row["task_sha256"]
    tasks: dict[int, dict[int, list[Turn]]] = {}
    for where in sorted(turns):
        tasks.setdefault(where.task_index, {}).setdefault(where.attempt, []).append(turns[where])
    groups = []
    for turns_of in tasks.values():
        episodes = tuple(Episode(tuple(found)) for found in turns_of.values())
        groups.append(Group(episodes[0].turns[0].task, episodes))
    return Result(name, tuple(groups), hashes, recipe, run)

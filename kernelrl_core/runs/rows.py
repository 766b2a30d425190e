"""Conversion of turns to rows of `samples.jsonl` and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import cattrs

from kernelrl_core.errors import KernelRLError
from kernelrl_core.runs.journal import is_finite
from kernelrl_core.types import Episode, Group, SampleId, Task, Turn
from kernelrl_core.types.serialization import from_json, to_json

__all__ = ["require_turns", "sample_id", "sample_row", "turn_from_row", "turn_without_task", "why_lost"]


_ROW_KEYS = {"staleness": "behind"}
"""Field of `Turn` -> its key in a row, for fields whose key differs."""
_FIELDS = {key: field for field, key in _ROW_KEYS.items()}


def sample_row(turn: Turn) -> dict[str, Any]:
    """A turn as plain data, without the source of its task. NaN and infinity become null."""
    row: dict[str, Any] = {"sample": str(turn.id)}
    row.update(to_json(turn.id))
    row.update(
        task_id=turn.task.id,
        task_sha256=turn.task.sha256,
        level=turn.task.level,
        task_name=turn.task.name,
        kernel_sha256=turn.candidate.sha256 if turn.candidate else None,
        speedup=turn.speedup,
    )
    row.update({_ROW_KEYS.get(key, key): value for key, value in to_json(turn).items() if key not in ("id", "task")})
    for key in ("lost_at", "examples", "excluded_examples", "parents"):
        if not row[key]:
            del row[key]
    clean: dict[str, Any] = _finite(row)
    return clean


def turn_from_row(row: Mapping[str, Any], task: Task) -> Turn:
    """The turn of a row that `sample_row` made.

    Raises:
        KernelRLError: the row is damaged or of another version, or belongs to another task or version of the task.
    """
    if (row["task_id"], row["task_sha256"]) != (task.id, task.sha256):
        raise KernelRLError(
            f"sample {row['sample']} of the journal belongs to another version of task {task.id}",
            fix="restore the tasks that the run started with, or start a new run",
            see="inputs-changed",
        )
    return _turn(row, task)


def turn_without_task(row: Mapping[str, Any]) -> Turn:
    """The turn of a row that `sample_row` made, for readers of results that lack the task source. Its task has id and
    level, and no reference.

    Raises:
        KernelRLError: the row is damaged or of another version.
    """
    return _turn(row, Task(row["task_id"], "", level=row["level"]))


def _turn(row: Mapping[str, Any], task: Task) -> Turn:
    derived = {"sample", "step", "task_index", "attempt", "turn", "task_id", "task_sha256", "level", "task_name"}
    fields = {key: value for key, value in row.items() if key not in derived | {"kernel_sha256", "speedup"}}
    fields = {_FIELDS.get(key, key): value for key, value in fields.items()}
    try:
        return from_json(Turn, {**fields, "id": to_json(sample_id(row)), "task": to_json(task)})
    except (KeyError, TypeError, ValueError, cattrs.BaseValidationError) as error:
        raise KernelRLError(
            f"sample {row['sample']} cannot be read: its row is damaged, or not of this version",
            fix="restore the file from a copy, or use the version of kernelrl that wrote it",
            see="run-version",
        ) from error


def sample_id(row: Mapping[str, Any]) -> SampleId:
    """Sample id of a row."""
    return SampleId(row["step"], row["task_index"], row["attempt"], row["turn"])


def why_lost(episodes: Iterable[Episode]) -> tuple[str, str]:
    """The last infrastructure error of these episodes, and its fix; empty strings if there is none."""
    lost = [turn for episode in episodes for turn in episode.turns if turn.masked]
    if not lost:
        return "", ""
    evaluation = lost[-1].evaluation
    text = (evaluation.detail if evaluation is not None else "") or lost[-1].message
    message, _, fix = text.partition("\nfix: ")
    return message, fix


def require_turns(groups: Iterable[Group], where: str, *, resume: str) -> None:
    """Raise an error if every turn was lost to an infrastructure error.

    Args:
        where: name of the rollout, for the message.
        resume: command that continues the run when the cause is fixed.

    Raises:
        KernelRLError: the last infrastructure error and its fix.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    if all(turn.masked for episode in episodes for turn in episode.turns):
        message, fix = why_lost(episodes)
        raise KernelRLError(
            f"every sample of {where} was lost to the infrastructure; the last error: {message}",
            fix=f"{fix or 'fix the cause'}, then {resume}",
            see="infrastructure",
        )


def _finite(value: Any) -> Any:
    # The error of a kernel's outputs may be infinite, which JSON cannot represent.
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(value) if is_finite(value) else [_finite(item) for item in value]
    return value

"""Audits of tasks: their results, the flags, and the file that stores them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import cattrs

from kernelrl_core.errors import UsageError
from kernelrl_core.types import EvaluationSettings, Task, TaskDtypes
from kernelrl_core.types import serialization as codec
from kernelrl_core.version import API_VERSION

__all__ = [
    "FLAGS",
    "Flag",
    "TaskAudit",
    "annotate",
    "append_audit",
    "audit_conditions",
    "audit_key",
    "quarantine_reasons",
    "read_audits",
]

_VERSION = 3
"""Version of the flags' definitions."""


@attrs.frozen
class Flag:
    """A possible defect of a task."""

    meaning: str
    """One sentence for users."""
    quarantines: bool = True
    """True if training excludes tasks with this flag."""
    mendable: bool = False
    """True if an input overlay can remove the defect."""


FLAGS: Mapping[str, Flag] = {
    "zeros_pass": Flag("Zeros of the right shape are within tolerance of the output.", mendable=True),
    "constant_pass": Flag("One constant per output tensor is within tolerance of the output.", mendable=True),
    "identity_pass": Flag("Every output tensor is within tolerance of an unchanged input.", mendable=True),
    "input_blind": Flag("The outputs for different inputs are within tolerance of each other.", mendable=True),
    "weight_blind": Flag("Changing every parameter keeps the output within tolerance.", mendable=True),
    "fixed_input": Flag("An input tensor or Python float is the same in every call.", mendable=True),
    "few_inputs": Flag("Inputs repeat between calls: there are few different ones, so outputs can be stored."),
    "structured_input": Flag(
        "An input always has zeros in the same places, is symmetric or sorted, "
        "and the model's source has no word for that, such as `mask` or `sort`."
    ),
    "nondeterministic": Flag("Two calls of the reference with the same inputs disagree."),
    "open_elements": Flag(
        "More than 1 % of the elements of an output depend on the last bit of the inputs, so that right kernels differ."
    ),
    "accidental_broadcast": Flag(
        "Operands of different rank were broadcast, and the result has the shape of neither operand, "
        "or the sizes matched by chance."
    ),
    "non_finite": Flag("The output contains infinities or NaN."),
    "reference_fails": Flag("The reference fails."),
    "fixed_number": Flag("A Python integer among the inputs is the same in every call.", quarantines=False),
    "tiny": Flag("On a data-centre GPU the launch takes longer than the work.", quarantines=False),
}
"""Name -> possible defect of a task, as in `TaskAudit.flags`."""


@attrs.frozen
class TaskAudit:
    """Result of executing a task's reference to find defects of the task."""

    task_id: str
    """Id of the task."""
    sha256: str
    """Content hash of the task."""
    conditions: Mapping[str, Any]
    """Settings and versions of the audit. A second audit under equal conditions is not needed."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """Flag (`kernelrl_core.types.audits.FLAGS`) -> the measurement that led to it."""
    mended_by: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] | None = None
    """Input overlay under which no shortcut passes; None if there is none."""
    unaudited: str | None = None
    """Reason why the audit failed; None if it succeeded."""
    provenance: Mapping[str, Any] = attrs.field(factory=dict)
    """Device and versions of the audit."""
    dtypes: TaskDtypes | None = None
    """Dtypes of the task as they are used; None if the reference was not called."""
    equals: tuple[str, ...] | None = None
    """Content hashes of the other tasks of this audit that compute the same; None: outputs were not compared."""


def audit_conditions(settings: EvaluationSettings) -> dict[str, Any]:
    """Everything that an audit depends on besides the task."""
    kept = ("profile", "precision", "atol", "rtol", "input_overlay")
    return {"version": _VERSION, "kernelrl": API_VERSION, **{name: getattr(settings, name) for name in kept}}


def audit_key(sha256: str, conditions: Mapping[str, Any]) -> str:
    """Identity of an audit: content hash of the task, settings and versions."""
    return json.dumps([sha256, dict(conditions)], sort_keys=True)


def read_audits(path: Path) -> list[TaskAudit]:
    """Audits of a file, one JSON document per line. An incomplete last line is skipped.

    Raises:
        UsageError: the file cannot be read, or another line is not an audit.
    """
    try:
        *lines, last = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as audits of tasks: {error}") from error
    audits = []
    for number, line in enumerate([*lines, last], 1):
        if not line.strip():
            continue
        try:
            audits.append(codec.loads(TaskAudit, line))
        except (ValueError, TypeError, AttributeError, cattrs.BaseValidationError) as error:
            # A killed process leaves a last line without a line feed.
            if number > len(lines):
                break
            raise UsageError(f"{path}:{number}: not an audit of a task; written by another version?") from error
    return audits


def append_audit(path: Path, audit: TaskAudit) -> None:
    """Append an audit to a file, after removing an incomplete last line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
        file.write(codec.dumps(audit).encode() + b"\n")


def annotate(task: Task, audits: Mapping[str, TaskAudit]) -> Task:
    """The task with the flags, the input overlay and the equal tasks of its audit, if there is one.

    Args:
        audits: content hash -> audit.
    """
    audit = audits.get(task.sha256)
    if audit is None:
        return task
    task = attrs.evolve(task, equals=audit.equals or ())
    if audit.unaudited is not None:
        return task
    return attrs.evolve(task, flags=tuple(dict.fromkeys((*task.flags, *audit.flags))), input_overlay=audit.mended_by)


def quarantine_reasons(task: Task) -> tuple[str, ...]:
    """Flags for which training excludes the task, without those that its input overlay removes."""

    def counts(flag: Flag) -> bool:
        return flag.quarantines and not (flag.mendable and task.input_overlay is not None)

    return tuple(name for name in task.flags if name in FLAGS and counts(FLAGS[name]))

"""Audits of tasks: what running a reference showed, the flags, and the file that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
import cattrs

from kernelrl_core.errors import UsageError
from kernelrl_core.types import EvaluationSettings, Task
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

_VERSION = 1
"""Of what the flags mean."""


@attrs.frozen
class Flag:
    """Something that may be wrong with a task."""

    meaning: str
    """One sentence for people."""
    quarantines: bool = True
    """Whether training leaves the task out."""
    mendable: bool = False
    """Whether other inputs can make it go away."""


FLAGS: Mapping[str, Flag] = {
    "zeros_pass": Flag("Zeros of the right shape are within tolerance of the output.", mendable=True),
    "constant_pass": Flag("One constant per output tensor is within tolerance of the output.", mendable=True),
    "identity_pass": Flag("An input, passed on as it is, is within tolerance of the output.", mendable=True),
    "input_blind": Flag("The output for some inputs is within tolerance of that for others.", mendable=True),
    "weight_blind": Flag("Changing every parameter leaves the output within tolerance.", mendable=True),
    "fixed_input": Flag("An input tensor, or a plain fraction, is the same in every call.", mendable=True),
    "few_inputs": Flag("Inputs of some calls are equal: there are few, and answers can be kept."),
    "structured_input": Flag("An input has zeros in fixed places, symmetry or order, and the model does not say so."),
    "nondeterministic": Flag("The reference, called twice with the same inputs, disagrees with itself."),
    "accidental_broadcast": Flag("Operands of unequal rank were broadcast to a shape that neither has, or by chance."),
    "non_finite": Flag("The output holds infinities or NaN."),
    "reference_fails": Flag("The reference does not run."),
    "fixed_number": Flag("A plain whole number among the inputs is the same in every call.", quarantines=False),
    "tiny": Flag("On a data-centre GPU the launch takes longer than the work.", quarantines=False),
}


@attrs.frozen
class TaskAudit:
    """What running a task's reference showed about the task."""

    task_id: str
    sha256: str
    """Content hash of the task."""
    conditions: Mapping[str, Any]
    """Settings and versions of the audit; another audit under equal conditions need not be made."""
    flags: Mapping[str, str] = attrs.field(factory=dict)
    """What was measured, by the flag (`kernelrl_core.types.audits.FLAGS`) that it led to."""
    mended_by: Literal["none", "signed", "heavy_tailed", "row_scaled", "mixed"] | None = None
    """Input overlay under which no shortcut passes any more."""
    unaudited: str | None = None
    """Why the audit could not be made; None where it was."""
    provenance: Mapping[str, Any] = attrs.field(factory=dict)
    """Where it was made: device and versions."""


def audit_conditions(settings: EvaluationSettings) -> dict[str, Any]:
    """What an audit depends on beside the task."""
    kept = ("profile", "precision", "atol", "rtol", "input_overlay")
    return {"version": _VERSION, "kernelrl": API_VERSION, **{name: getattr(settings, name) for name in kept}}


def audit_key(sha256: str, conditions: Mapping[str, Any]) -> str:
    """Identity of an audit: content hash of the task, settings and versions."""
    return json.dumps([sha256, dict(conditions)], sort_keys=True)


def read_audits(path: Path) -> list[TaskAudit]:
    """Audits of a file, one JSON document per line. A last line that was cut short is left out.

    Raises:
        UsageError: the file cannot be read, or another line is no audit.
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
            # Only what ends without a line feed was cut short by a process that was killed.
            if number > len(lines):
                break
            raise UsageError(f"{path}:{number}: not an audit of a task; written by another version?") from error
    return audits


def append_audit(path: Path, audit: TaskAudit) -> None:
    """Add an audit to a file, whole, after dropping a line that was cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        file.seek(0)
        content = file.read()
        if content and not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
        file.write(codec.dumps(audit).encode() + b"\n")


def annotate(task: Task, audits: Mapping[str, TaskAudit]) -> Task:
    """A task with what its audit found.

    Args:
        audits: by content hash.
    """
    audit = audits.get(task.sha256)
    if audit is None or audit.unaudited is not None:
        return task
    return attrs.evolve(task, flags=tuple(dict.fromkeys((*task.flags, *audit.flags))), input_overlay=audit.mended_by)


def quarantine_reasons(task: Task) -> tuple[str, ...]:
    """Flags for which training leaves a task out; those that an overlay mends are none."""

    def counts(flag: Flag) -> bool:
        return flag.quarantines and not (flag.mendable and task.input_overlay is not None)

    return tuple(name for name in task.flags if name in FLAGS and counts(FLAGS[name]))

"""Write a task source."""

from __future__ import annotations

from kernelrl_core.interfaces.tasks import TaskConfig, TaskSource
from kernelrl_core.sources.task_source import parse_task_source
from kernelrl_core.types.audits import FLAGS, TaskAudit, annotate, append_audit, quarantine_reasons, read_audits
from kernelrl_core.types.outcomes import Outcome
from kernelrl_core.types.tasks import Demonstration, Task, TaskSettings

__all__ = [
    "FLAGS",
    "Demonstration",
    "Outcome",
    "Task",
    "TaskAudit",
    "TaskConfig",
    "TaskSettings",
    "TaskSource",
    "annotate",
    "append_audit",
    "parse_task_source",
    "quarantine_reasons",
    "read_audits",
]

"""Write a feedback formatter."""

from __future__ import annotations

from kernelrl_core.interfaces.feedback import Feedback, FeedbackConfig
from kernelrl_core.sources.error_text import clean_error
from kernelrl_core.types.evaluations import (
    BuildStatus,
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    ExtensionBuild,
    Mismatch,
    Roofline,
    TaskDtypes,
    TimingFacts,
)
from kernelrl_core.types.outcomes import Finding, Outcome, Severity, Verdict
from kernelrl_core.types.tasks import Task
from kernelrl_core.types.turns import Turn

__all__ = [
    "BuildStatus",
    "CompiledKernel",
    "DeviceKernel",
    "Evaluation",
    "EvaluationFacts",
    "ExtensionBuild",
    "Feedback",
    "FeedbackConfig",
    "Finding",
    "Mismatch",
    "Outcome",
    "Roofline",
    "Severity",
    "Task",
    "TaskDtypes",
    "TimingFacts",
    "Turn",
    "Verdict",
    "clean_error",
]

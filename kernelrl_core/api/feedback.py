"""Write a feedback formatter."""

from __future__ import annotations

from kernelrl_core.interfaces.feedback import Feedback, FeedbackConfig
from kernelrl_core.types.evaluations import (
    BuildStatus,
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    ExtensionBuild,
    Roofline,
    TaskDtypes,
    TimingFacts,
)
from kernelrl_core.types.mismatches import Cause, Mismatch, MismatchCause, WrongElement, describe_mismatch
from kernelrl_core.types.outcomes import Finding, Outcome, Severity, Verdict
from kernelrl_core.types.replies import Candidate, Extraction
from kernelrl_core.types.tasks import Task
from kernelrl_core.types.turns import SampleId, Score, Turn
from kernelrl_sources.error_text import clean_error

__all__ = [
    "BuildStatus",
    "Candidate",
    "Cause",
    "CompiledKernel",
    "DeviceKernel",
    "Evaluation",
    "EvaluationFacts",
    "ExtensionBuild",
    "Extraction",
    "Feedback",
    "FeedbackConfig",
    "Finding",
    "Mismatch",
    "MismatchCause",
    "Outcome",
    "Roofline",
    "SampleId",
    "Score",
    "Severity",
    "Task",
    "TaskDtypes",
    "TimingFacts",
    "Turn",
    "Verdict",
    "WrongElement",
    "clean_error",
    "describe_mismatch",
]

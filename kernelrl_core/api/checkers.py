"""Write a checker."""

from __future__ import annotations

from kernelrl_core.interfaces.checkers import Checker, CheckerConfig
from kernelrl_core.types.evaluations import (
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    ExtensionBuild,
    Roofline,
    TaskDtypes,
    TimingFacts,
)
from kernelrl_core.types.outcomes import Finding, Outcome, Rule, Severity, Verdict
from kernelrl_core.types.replies import Candidate, EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.types.tasks import Task

__all__ = [
    "Candidate",
    "Checker",
    "CheckerConfig",
    "CompiledKernel",
    "DeviceKernel",
    "EmbeddedSource",
    "Evaluation",
    "EvaluationFacts",
    "ExtensionBuild",
    "Finding",
    "KernelFact",
    "Outcome",
    "Roofline",
    "Rule",
    "Severity",
    "SourceFacts",
    "Task",
    "TaskDtypes",
    "TimingFacts",
    "Verdict",
]

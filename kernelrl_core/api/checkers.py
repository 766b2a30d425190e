"""Write a checker."""

from __future__ import annotations

from kernelrl_core.interfaces.checkers import Checker, CheckerConfig
from kernelrl_core.types.evaluations import CompiledKernel, Evaluation
from kernelrl_core.types.outcomes import Finding, Outcome, Rule, Severity, Verdict
from kernelrl_core.types.replies import Candidate, EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.types.tasks import Task

__all__ = [
    "Candidate",
    "Checker",
    "CheckerConfig",
    "CompiledKernel",
    "EmbeddedSource",
    "Evaluation",
    "Finding",
    "KernelFact",
    "Outcome",
    "Rule",
    "Severity",
    "SourceFacts",
    "Task",
    "Verdict",
]

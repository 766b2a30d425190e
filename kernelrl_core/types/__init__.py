"""The values that flow through a run, in the order in which they are created.

    Task ─> Prompt ─> Reply ─> Extraction ─> Candidate ─> EvaluationRequest ─> Evaluation ─> Turn ─> Episode ─> Group

All are frozen and consist of text, numbers, tuples and mappings, so each can be written as JSON
(`types.serialization`), sent to another machine and compared. Names contain units. These modules import only attrs.
"""

from __future__ import annotations

from kernelrl_core.types.evaluations import (
    BuildStatus,
    CompiledKernel,
    DeviceKernel,
    Evaluation,
    EvaluationFacts,
    EvaluationRequest,
    EvaluationSettings,
    ExtensionBuild,
    Isolation,
    Roofline,
    RuntimeStatistics,
    TaskDtypes,
    TimingFacts,
)
from kernelrl_core.types.hashes import sha256_text
from kernelrl_core.types.mismatches import Cause, Mismatch, MismatchCause, WrongElement
from kernelrl_core.types.outcomes import CHECKER_FAILED, CHECKER_FAILED_RULE, Finding, Outcome, Rule, Severity, Verdict
from kernelrl_core.types.replies import (
    Candidate,
    EmbeddedSource,
    Extraction,
    KernelFact,
    Message,
    Prompt,
    Reply,
    SourceFacts,
)
from kernelrl_core.types.tasks import (
    DOMAIN_OF_OTHERS,
    Demonstration,
    Example,
    ExcludedExample,
    ShownExample,
    Task,
    TaskSettings,
    WarmStartExample,
)
from kernelrl_core.types.turns import Episode, Group, SampleId, Score, Turn

__all__ = [
    "CHECKER_FAILED",
    "CHECKER_FAILED_RULE",
    "DOMAIN_OF_OTHERS",
    "BuildStatus",
    "Candidate",
    "Cause",
    "CompiledKernel",
    "Demonstration",
    "DeviceKernel",
    "EmbeddedSource",
    "Episode",
    "Evaluation",
    "EvaluationFacts",
    "EvaluationRequest",
    "EvaluationSettings",
    "Example",
    "ExcludedExample",
    "ExtensionBuild",
    "Extraction",
    "Finding",
    "Group",
    "Isolation",
    "KernelFact",
    "Message",
    "Mismatch",
    "MismatchCause",
    "Outcome",
    "Prompt",
    "Reply",
    "Roofline",
    "Rule",
    "RuntimeStatistics",
    "SampleId",
    "Score",
    "Severity",
    "ShownExample",
    "SourceFacts",
    "Task",
    "TaskDtypes",
    "TaskSettings",
    "TimingFacts",
    "Turn",
    "Verdict",
    "WarmStartExample",
    "WrongElement",
    "sha256_text",
]

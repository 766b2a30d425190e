"""Write an evaluator, or process evaluations."""

from __future__ import annotations

from kernelrl_core.interfaces.device_lease import DeviceLease, lock_directory
from kernelrl_core.interfaces.evaluators import Evaluator, EvaluatorConfig
from kernelrl_core.interfaces.remote import read_response, serve_request
from kernelrl_core.service_address import SERVICE_SOCKET, SERVICE_VARIABLE, UNIX
from kernelrl_core.types.audits import TaskAudit, audit_conditions, audit_key
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
from kernelrl_core.types.mismatches import Cause, Mismatch, MismatchCause, WrongElement, describe_mismatch
from kernelrl_core.types.outcomes import Finding, Outcome, Rule, Severity, Verdict
from kernelrl_core.types.packages import package_problem
from kernelrl_core.types.replies import EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.types.serialization import from_json, to_json
from kernelrl_core.types.tasks import Task
from kernelrl_devices.leases import HeldLease, Turn, gpu_device_name

__all__ = [
    "SERVICE_SOCKET",
    "SERVICE_VARIABLE",
    "UNIX",
    "BuildStatus",
    "Cause",
    "CompiledKernel",
    "DeviceKernel",
    "DeviceLease",
    "EmbeddedSource",
    "Evaluation",
    "EvaluationFacts",
    "EvaluationRequest",
    "EvaluationSettings",
    "Evaluator",
    "EvaluatorConfig",
    "ExtensionBuild",
    "Finding",
    "HeldLease",
    "Isolation",
    "KernelFact",
    "Mismatch",
    "MismatchCause",
    "Outcome",
    "Roofline",
    "Rule",
    "RuntimeStatistics",
    "Severity",
    "SourceFacts",
    "Task",
    "TaskAudit",
    "TaskDtypes",
    "TimingFacts",
    "Turn",
    "Verdict",
    "WrongElement",
    "audit_conditions",
    "audit_key",
    "describe_mismatch",
    "from_json",
    "gpu_device_name",
    "lock_directory",
    "package_problem",
    "read_response",
    "serve_request",
    "sha256_text",
    "to_json",
]

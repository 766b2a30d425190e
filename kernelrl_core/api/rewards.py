"""Write a reward component."""

from __future__ import annotations

from kernelrl_core.interfaces.rewards import Reward, RewardBounds, RewardConfig
from kernelrl_core.types.evaluations import CompiledKernel, Evaluation
from kernelrl_core.types.outcomes import Finding, Outcome, Severity, Verdict
from kernelrl_core.types.replies import Candidate, Extraction
from kernelrl_core.types.tasks import Task
from kernelrl_core.types.turns import SampleId, Score, Turn

__all__ = [
    "Candidate",
    "CompiledKernel",
    "Evaluation",
    "Extraction",
    "Finding",
    "Outcome",
    "Reward",
    "RewardBounds",
    "RewardConfig",
    "SampleId",
    "Score",
    "Severity",
    "Task",
    "Turn",
    "Verdict",
]

"""Write a kernel backend: `Backend` for the main process, `BackendRunner` for the runner."""

from __future__ import annotations

from kernelrl_core.interfaces.backends import Backend, BackendConfig, BackendFacts, BackendRunner
from kernelrl_core.types.evaluations import EvaluationSettings
from kernelrl_core.types.replies import EmbeddedSource, KernelFact, SourceFacts
from kernelrl_core.types.tasks import Example

__all__ = [
    "Backend",
    "BackendConfig",
    "BackendFacts",
    "BackendRunner",
    "EmbeddedSource",
    "EvaluationSettings",
    "Example",
    "KernelFact",
    "SourceFacts",
]

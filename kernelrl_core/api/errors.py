"""Errors that a plugin raises, and hints for their messages."""

from __future__ import annotations

from kernelrl_core.errors import (
    EvaluationError,
    ExitCode,
    InfrastructureError,
    KernelRLError,
    LookupFailed,
    MissingPrerequisite,
    PluginError,
    SamplingError,
    StorageError,
    UsageError,
    nearest,
    nearest_path,
    suggestion,
)

__all__ = [
    "EvaluationError",
    "ExitCode",
    "InfrastructureError",
    "KernelRLError",
    "LookupFailed",
    "MissingPrerequisite",
    "PluginError",
    "SamplingError",
    "StorageError",
    "UsageError",
    "nearest",
    "nearest_path",
    "suggestion",
]

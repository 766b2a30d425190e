"""Errors that a plugin raises, and hints for their messages."""

from __future__ import annotations

from kernelrl_core.errors import (
    ExitCode,
    InfrastructureError,
    KernelRLError,
    LookupFailed,
    MissingPrerequisite,
    UsageError,
    nearest,
    suggestion,
)

__all__ = [
    "ExitCode",
    "InfrastructureError",
    "KernelRLError",
    "LookupFailed",
    "MissingPrerequisite",
    "UsageError",
    "nearest",
    "suggestion",
]

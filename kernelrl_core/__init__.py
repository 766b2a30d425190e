"""The core of kernelrl: what plugins are written against.

Everything a plugin needs is importable from here; the modules behind it may move.
"""

from __future__ import annotations

from kernelrl_core.errors import (
    InfrastructureError,
    KernelRLError,
    LookupFailed,
    MissingPrerequisite,
    UsageError,
)
from kernelrl_core.interfaces.component import Component, Requires
from kernelrl_core.interfaces.hookspecs import hookimpl
from kernelrl_core.version import API_VERSION, __version__

__all__ = [
    "API_VERSION",
    "Component",
    "InfrastructureError",
    "KernelRLError",
    "LookupFailed",
    "MissingPrerequisite",
    "Requires",
    "UsageError",
    "__version__",
    "hookimpl",
]

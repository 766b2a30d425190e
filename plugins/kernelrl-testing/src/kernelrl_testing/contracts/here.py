"""Components of this environment that work on this machine, for contracts that need one of another kind."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any, cast
from unittest import SkipTest

from kernelrl_core.errors import KernelRLError
from kernelrl_core.interfaces.backends import Backend, BackendRunner
from kernelrl_core.interfaces.requirements import missing_requirements
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.types import EvaluationSettings
from kernelrl_devices.gpus import gpu_vendors
from kernelrl_testing.contracts.options import read_options

__all__ = ["backend_here", "evaluator_here", "obstacle_to_running", "runner_of"]

_MODES = ("interpreter", "cpu", "gpu")
"""Modes of backends that execute kernels, the one with the shortest start first."""


def evaluator_here(registry: Registry) -> Use:
    """An evaluator that evaluates on this machine with its default options.

    Raises:
        SkipTest: there is none.
    """
    for component in registry.components("evaluators"):
        try:
            use = read_options(registry, "evaluators", registry.label("evaluators", component), {})
        except KernelRLError:
            continue
        if use.options.settings_here(EvaluationSettings()) is not None and not registry.missing(component, use.options):
            return use
    raise SkipTest("no evaluator for this machine is installed; fix: pip install kernelrl-plugin-local")


def backend_here(registry: Registry) -> tuple[Backend, Use]:
    """The backend whose kernels this machine executes with the shortest start.

    Raises:
        SkipTest: there is none.
    """
    found = sorted(_backends(registry), key=lambda one: _MODES.index(one[0]))
    if not found:
        raise SkipTest("no installed backend executes kernels on this machine; fix: kernelrl doctor")
    return found[0][1:]


def _backends(registry: Registry) -> Iterator[tuple[str, Backend, Use]]:
    for component in registry.components("backends"):
        try:
            use = read_options(registry, "backends", registry.label("backends", component), {})
            backend = registry.make("backends", use)
            mode = runner_of(backend).mode(use.raw, bool(gpu_vendors()))
        except (KernelRLError, ImportError):
            continue
        if mode in _MODES and not obstacle_to_running(registry, use, mode):
            yield mode, backend, use


def obstacle_to_running(registry: Registry, use: Use, mode: str) -> str:
    """Why this machine does not execute kernels of a backend, with the fix; empty if it does."""
    settings = EvaluationSettings()
    component = registry.find("backends", use.use)
    needed = missing_requirements(use.options.requires_for(settings))
    missing = [*registry.missing(component, use.options), *needed]
    if missing:
        return f"{missing[0].what} is missing; fix: {missing[0].fix}"
    if mode not in _MODES:
        return "this machine can compile its kernels and not execute them; fix: use a machine with its GPU"
    pending = [fact for fact in use.options.found_here() if fact.state == "pending"]
    if pending:
        return f"{pending[0].label}: {pending[0].detail}; fix: evaluate one kernel: kernelrl check TASK KERNEL"
    return ""


def runner_of(backend: Any) -> BackendRunner:
    """The runner of a backend, made in this process; only its method `mode` may be called here."""
    module, _, attribute = str(backend.runner).partition(":")
    return cast(BackendRunner, getattr(importlib.import_module(module), attribute)())

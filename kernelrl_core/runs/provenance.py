"""Provenance of a run: versions, plugins, seeds, hardware, sources."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernelrl_core.plugins.boundary import plugin_boundary, returned_plain
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.recipe.evaluation_spec import spec_of
from kernelrl_core.recipe.prerequisites import require_prerequisites
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.runs.directory import now
from kernelrl_core.version import __version__
from kernelrl_devices.gpus import nvidia_gpus

__all__ = ["git_facts", "machine_facts", "policy_identity", "provenance", "retriever_identity"]


def provenance(
    recipe: Recipe, registry: Registry, *, sources: Any = (), overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """Plain data for `provenance.json`. Contains no environment variables, so no secrets."""
    return {
        "kernelrl": __version__,
        **machine_facts(registry),
        "seed": recipe.seed,
        "retriever": retriever_identity(recipe, registry),
        "policy": policy_identity(recipe),
        "git": git_facts(Path.cwd()),
        "sources": [str(source) for source in sources],
        "overrides": list(overrides),
        "command": ["kernelrl", *sys.argv[1:]],
        "directory": os.getcwd(),
        "started": now(),
    }


def machine_facts(registry: Registry) -> dict[str, Any]:
    """Python, platform, plugins and hardware as plain data."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "plugins": [
            {"name": plugin.name, "dist": plugin.dist, "version": plugin.version, "state": plugin.state}
            for plugin in registry.plugins
        ],
        "hardware": {"cpus": os.cpu_count(), "machine": platform.machine(), "gpus": _gpus()},
    }


def retriever_identity(recipe: Recipe, registry: Registry) -> dict[str, Any]:
    """`Retriever.identity` of the recipe's retriever; empty without one.

    Raises:
        MissingPrerequisite: the retriever lacks a prerequisite, such as its index.
        KernelRLError: the retriever failed.
    """
    use = recipe.retriever
    if use is None:
        return {}
    require_prerequisites([("retrievers", use)], spec_of(recipe), registry)
    retriever = registry.make("retrievers", use)
    with plugin_boundary(f"retriever {use.use!r}", "identity"):
        return returned_plain(retriever.identity(), f"retriever {use.use!r}", "identity")


def policy_identity(recipe: Recipe) -> dict[str, Any]:
    """`PolicyConfig.identity` of the recipe's policy.

    Raises:
        MissingPrerequisite: the policy's model is not installed.
        KernelRLError: the policy failed.
    """
    name = f"policy {recipe.policy.use!r}"
    with plugin_boundary(name, "identity"):
        return returned_plain(recipe.policy.options.identity(), name, "identity")


def _gpus() -> list[str]:
    return [f"{gpu.model}, {gpu.driver}" for gpu in nvidia_gpus()]


def git_facts(directory: Path) -> dict[str, Any] | None:
    """Revision of the git checkout that contains a directory, and whether tracked files changed; None without one."""
    git = ["git", "-C", str(directory)]
    if not shutil.which("git") or not (revision := _lines([*git, "rev-parse", "HEAD"])):
        return None
    return {"revision": revision[0], "changed": bool(_lines([*git, "status", "--porcelain", "--untracked-files=no"]))}


def _lines(command: list[str]) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()

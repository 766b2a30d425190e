"""Compilers and precompiled headers of this machine, for declarations of requirements and for `kernelrl doctor`.

Imports no torch and compiles nothing.
"""

from __future__ import annotations

import re
from pathlib import Path

from kernelrl_build.prepare import prepare
from kernelrl_build.toolchain import Toolchain, ToolchainMissing, known_toolchain, output_of, programs
from kernelrl_core.api import Requires
from kernelrl_core.api.config import MachineFact, cache_directory, nvidia_gpus

__all__ = ["gpu_facts", "precompiled_headers", "prepares_headers", "requires_compilers", "survey"]

_VERSION = re.compile(r"release ([\d.]+)|HIP version: ([\d.]+)|(\d+\.\d+\.\d+)")
_NOT_PREPARED = "not yet prepared; the first build does that, once, in 1 to 3 minutes"


def requires_compilers(language: str) -> Requires:
    """The requirements that a configuration declares for extensions of a language."""
    missing = [(program, fix) for program, path, fix in programs(language) if path is None]
    return Requires(executables=tuple(program for program, _ in missing), fix="; ".join(fix for _, fix in missing))


def survey(language: str) -> list[MachineFact]:
    """Compilers with version and path, and whether the first build will be slow."""
    found = {program: f"{_version(path)}, {path}" for program, path, _ in programs(language) if path is not None}
    toolchain = _known(language)
    if toolchain is not None and toolchain.archs:
        found["architectures"] = ", ".join(toolchain.archs)
    facts = [MachineFact(label, detail) for label, detail in found.items()]
    if any(path is None for _, path, _ in programs(language)):
        return facts
    headers = ", ".join(precompiled_headers(language))
    return [*facts, MachineFact("precompiled headers", headers or _NOT_PREPARED, "ok" if headers else "pending")]


def precompiled_headers(language: str) -> list[str]:
    """Names of the precompiled headers for extensions of a language; none before the first build."""
    directory = _prepared_directory(language)
    if directory is None:
        return []
    # A header that is being built is in a hidden directory.
    return sorted(path.parent.name for path in directory.glob("[!.]*/*.gch"))


def prepares_headers(language: str) -> bool:
    """Whether a process precompiles a header for extensions of a language now."""
    directory = _prepared_directory(language)
    return directory is not None and any(directory.glob(".part-*/*/"))


def _prepared_directory(language: str) -> Path | None:
    toolchain = _known(language)
    return None if toolchain is None else prepare(toolchain, _builds() / "toolchains").directory


def _known(language: str) -> Toolchain | None:
    try:
        return known_toolchain(language, _builds())
    except ToolchainMissing:
        return None


def gpu_facts() -> list[MachineFact]:
    """Name, driver and compute capability of NVIDIA's GPUs, as the driver reports them."""
    gpus = dict.fromkeys(f"{gpu.model}, driver {gpu.driver}, architecture {gpu.arch}" for gpu in nvidia_gpus())
    return [MachineFact("GPU", "; ".join(gpus))] if gpus else []


def _builds() -> Path:
    return cache_directory() / "builds"


def _version(path: str) -> str:
    match = _VERSION.search(output_of([path, "--version"]))
    return next(filter(None, match.groups())) if match else "version unknown"

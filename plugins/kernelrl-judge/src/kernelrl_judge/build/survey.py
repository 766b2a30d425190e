"""What this machine has for building extensions, for declarations of requirements and for `kernelrl doctor`.

Imports no torch and starts no compiler's work.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from kernelrl_core.api import Requires
from kernelrl_core.api.config import MachineFact, cache_directory
from kernelrl_judge.build.prepare import prepare
from kernelrl_judge.build.toolchain import ToolchainMissing, known_toolchain, programs

__all__ = ["nvidia_gpus", "precompiled_headers", "requires_compilers", "survey"]

_VERSION = re.compile(r"release ([\d.]+)|HIP version: ([\d.]+)|(\d+\.\d+\.\d+)")
_NOT_PREPARED = "not yet prepared; the first build does that, once, in 1 to 3 minutes"


def requires_compilers(language: str) -> Requires:
    """What a configuration declares to need for extensions of a language."""
    missing = [(program, fix) for program, path, fix in programs(language) if path is None]
    return Requires(executables=tuple(program for program, _ in missing), fix="; ".join(fix for _, fix in missing))


def survey(language: str) -> list[MachineFact]:
    """Compilers with version and place, and whether the first build will be slow."""
    found = {program: f"{_version(path)}, {path}" for program, path, _ in programs(language) if path is not None}
    try:
        toolchain = known_toolchain(language, _builds())
    except ToolchainMissing:
        return _facts(found)
    if toolchain is not None and toolchain.archs:
        found["architectures"] = ", ".join(toolchain.archs)
    headers = ", ".join(precompiled_headers(language))
    label = "precompiled headers"
    return [*_facts(found), MachineFact(label, headers) if headers else MachineFact(label, _NOT_PREPARED, "pending")]


def precompiled_headers(language: str) -> list[str]:
    """Names of the precompiled headers for extensions of a language; none before the first build."""
    try:
        toolchain = known_toolchain(language, _builds())
    except ToolchainMissing:
        return []
    if toolchain is None:
        return []
    directory = prepare(toolchain, _builds() / "toolchains").directory
    # A header that is being built is in a hidden directory.
    return sorted(path.parent.name for path in directory.glob("[!.]*/*.gch"))


def nvidia_gpus() -> list[MachineFact]:
    """Name, driver and compute capability of NVIDIA's GPUs, as the driver says."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"]
    lines = dict.fromkeys(_said(command).strip().splitlines())
    parts = [line.split(", ") for line in lines if line.count(", ") == 2]
    said = [f"{name}, driver {driver}, architecture {arch}" for name, driver, arch in parts]
    return _facts({"GPU": "; ".join(said)} if said else {})


def _facts(found: Mapping[str, str]) -> list[MachineFact]:
    return [MachineFact(label, detail) for label, detail in found.items()]


def _builds() -> Path:
    return cache_directory() / "builds"


def _version(path: str) -> str:
    match = _VERSION.search(_said([path, "--version"]))
    return next(filter(None, match.groups())) if match else "version unknown"


def _said(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""

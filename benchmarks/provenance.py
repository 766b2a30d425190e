"""Provenance of a benchmark's figures, recorded beside them."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

__all__ = ["machine", "provenance"]

ROOT = Path(__file__).resolve().parents[1]


def provenance(*packages: str) -> dict[str, Any]:
    """Date and load, and the result of `machine`; call it before measuring."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "load_at_start": round(os.getloadavg()[0], 2),
        **machine(*packages),
    }


def machine(*packages: str) -> dict[str, Any]:
    """Properties that figures of several calls must share to form one result.

    Args:
        packages: distributions whose versions matter, besides kernelrl.
    """
    cpu = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*: (.*)", cpu.read_text()) if cpu.exists() else []
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("kernelrl", *packages)},
        "git": _git(),
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _git() -> dict[str, Any] | None:
    """Revision of this repository, and whether files other than benchmark results changed.

    A copy without a checkout has its revision in the variable `SOURCE_REVISION`, or None.
    """
    revision = _lines("rev-parse", "HEAD")
    if not revision:
        given = os.environ.get("SOURCE_REVISION")
        return {"revision": given, "changed": False} if given else None
    changed = _lines("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
    return {"revision": revision[0], "changed": bool(changed)}


def _lines(*arguments: str) -> list[str]:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines()

"""Processes that this process started and that still run."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["descendants", "left_over"]

_OF_PYTHON = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
"""Helpers of Python's own library, which end with this process."""
_PAUSE_S = 0.05


def descendants() -> Mapping[int, str]:
    """Id -> command line of each running process below this one; empty where there is no `/proc`."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            # The name in parentheses may contain anything.
            state, parent, *_ = (entry / "stat").read_text(errors="replace").rpartition(") ")[2].split()
        except (OSError, ValueError):
            continue  # ended meanwhile
        if state not in "ZX":
            parents[int(entry.name)] = int(parent)
    found: dict[int, str] = {}
    waiting = [os.getpid()]
    while waiting:
        current = waiting.pop()
        below = [process for process, above in parents.items() if above == current]
        found |= {process: _command(process) for process in below}
        waiting += below
    return {process: command for process, command in found.items() if not any(one in command for one in _OF_PYTHON)}


def left_over(before: Mapping[int, str], patience_s: float) -> Mapping[int, str]:
    """Processes below this one that were not there before, after waiting at most so long for their end."""
    deadline = time.monotonic() + patience_s
    while True:
        found = {process: command for process, command in descendants().items() if process not in before}
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(_PAUSE_S)


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""

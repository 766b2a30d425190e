"""Control groups (version 2): memory and processes of all that a candidate or a build starts, limited together.

A zygote, or the job of a build, moves into a group of its own once, and whatever it forks is in it from the start:
moving each candidate would cost more than judging it. Groups whose processes have ended, however they ended, are
removed by whoever makes the next.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from pathlib import Path

import attrs

__all__ = ["Group", "be_killed_first", "find_place", "join"]

_PREFIX = "kernelrl_"
_NEEDED = ("memory", "pids")
_SLACK_MIB = 256
"""For pages of files, which count as well."""
_MORE_TASKS = 256
_ATTEMPTS = 3


@attrs.frozen
class Group:
    """A group that holds this process."""

    path: Path

    def limit(self, memory_mib: int) -> bool:
        """Limit what is started from now on, beyond what is there; whether that was possible."""
        try:
            used, tasks = (int((self.path / f"{name}.current").read_text()) for name in _NEEDED)
            # Memory that others wait to be paged out is memory as well.
            with contextlib.suppress(FileNotFoundError):
                (self.path / "memory.swap.max").write_text("0")
            (self.path / "memory.max").write_text(str(used + (memory_mib + _SLACK_MIB << 20)))
            (self.path / "pids.max").write_text(str(tasks + _MORE_TASKS))
        except (OSError, ValueError):
            return False
        return True

    def killed(self) -> int:
        """How many processes had to end so far because all together reached the limit of memory."""
        with contextlib.suppress(OSError):
            found = re.search(r"^oom_kill (\d+)$", (self.path / "memory.events").read_text(), re.MULTILINE)
            return int(found[1]) if found else 0
        return 0


def join() -> Group | None:
    """Move this process into a new group; None where this user may not make one."""
    place = find_place()
    if place is None:
        return None
    remove_abandoned(place)
    for _ in range(_ATTEMPTS):
        path = place / f"{_PREFIX}{os.getpid()}_{os.urandom(4).hex()}"
        try:
            path.mkdir()
        except OSError:
            return None
        try:
            (path / "cgroup.procs").write_text("0")
        except FileNotFoundError:
            # Somebody else took it for an abandoned one.
            continue
        except OSError:
            with contextlib.suppress(OSError):
                path.rmdir()
            return None
        return Group(path)
    return None


def find_place(root: str = "/") -> Path | None:
    """Directory in which groups with limits can be made, and into which this process can be moved.

    It is the parent of the group that this process is in, because a group with processes has no groups with limits
    below it.
    """
    try:
        lines = Path(root, "proc/self/cgroup").read_text().splitlines()
        mounts = Path(root, "proc/self/mounts").read_text().splitlines()
    except OSError:
        return None
    own = next((line[3:] for line in lines if line.startswith("0::/")), "/")
    top = next((fields[1] for fields in map(str.split, mounts) if fields[2:3] == ["cgroup2"]), None)
    # In a container without its own view of groups, the way leads out of what is visible.
    if own == "/" or top is None or ".." in own:
        return None
    if os.path.basename(own).startswith(_PREFIX):
        return None
    place = Path(root, top.lstrip("/"), own.lstrip("/")).parent
    try:
        controllers = (place / "cgroup.subtree_control").read_text().split()
    except OSError:
        return None
    writable = os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK)
    return place if writable and set(_NEEDED) <= set(controllers) else None


def remove_abandoned(place: Path) -> None:
    """Remove groups of ours that hold no process: a killed program cannot, and nobody is in what it leaves."""
    for path in glob.glob(str(place / f"{_PREFIX}*")):
        # The kernel keeps those that are in use.
        with contextlib.suppress(OSError):
            os.rmdir(path)


def be_killed_first() -> None:
    """Where memory runs out, this process and its children are ended before the one that made them."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

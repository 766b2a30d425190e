"""Rights of a process: user id, capabilities, descriptors, access by other processes, and its end with its parent.

Also the names of the isolation layers and the levels that they add to.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import resource
import signal
import struct

__all__ = [
    "LAYERS",
    "be_killed_first",
    "become_nobody",
    "close_others",
    "close_to_others",
    "die_with_parent",
    "drop_capabilities",
    "isolation_level",
    "open_to_itself",
]

_LEVELS = (
    ("limits",),
    ("user_namespace", "pid_namespace"),
    ("mount_namespace", "network_namespace", "capabilities"),
    ("seccomp",),
)
LAYERS = (*(layer for level in _LEVELS for layer in level), "dropped_uid", "device_nodes")
"""All layers in the order of the isolation level they add to; the last two add to none."""


def isolation_level(missing: list[str]) -> int:
    """Isolation level if these layers are missing."""
    for level, needed in enumerate(_LEVELS):
        if set(needed) & set(missing):
            return level
    return len(_LEVELS)


_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_PDEATHSIG = 1

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_CAPABILITY_VERSION = 0x20080522
_FIRST_USER, _USERS, _NOBODY = 0x70000000, 1 << 20, 65534


def close_to_others() -> None:
    """Prevent processes of the same user from tracing this one, reading its memory and opening its descriptors."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def become_nobody() -> bool:
    """Change from root to a user id without files, another one in each process; returns whether that was possible.

    A container may have few user ids; then it is the id of `nobody`.
    """
    for user in (_FIRST_USER + os.getpid() % _USERS, _NOBODY):
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            continue
        # Otherwise the files of this process in `/proc` would belong to root. It needs them to get a namespace.
        _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
        return True
    return False


def drop_capabilities() -> bool:
    """Give up all capabilities for good, also those in the own namespaces; returns whether that was possible."""
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION, 0)
    return bool(_libc.capset(header, bytes(24)) == 0)


def open_to_itself() -> None:
    """Undo `close_to_others` while this process still has to write to its files in `/proc`."""
    _libc.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def die_with_parent() -> None:
    """End this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def close_others(keep: set[int]) -> None:
    """Close all descriptors but these and the three standard ones."""
    end = min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)
    for low, high in itertools.pairwise([2, *sorted(keep - {0, 1, 2}), end]):
        os.closerange(low + 1, high)


def be_killed_first() -> None:
    """Let the kernel end this process and its children first if memory runs out."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")

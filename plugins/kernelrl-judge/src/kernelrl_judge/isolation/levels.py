"""Names of the layers of the sandbox, and the level of isolation that they add up to."""

from __future__ import annotations

__all__ = ["LAYERS", "isolation_level"]

_LEVELS = (
    ("limits",),
    ("user_namespace", "pid_namespace"),
    ("mount_namespace", "network_namespace", "capabilities"),
    ("seccomp",),
)
LAYERS = (*(layer for level in _LEVELS for layer in level), "dropped_uid", "device_nodes", "cgroup")
"""All layers in the order of the isolation level they add to; the last three add to none."""


def isolation_level(missing: list[str]) -> int:
    """Level of `Isolation` that is reached when these layers are missing."""
    for level, needed in enumerate(_LEVELS):
        if set(needed) & set(missing):
            return level
    return len(_LEVELS)

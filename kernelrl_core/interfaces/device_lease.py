"""Device leases of this user: exclusive for timed work, shared for all other work on a device.

A policy that computes on a GPU holds a shared lease while it works, so that it does not disturb the timing of kernels:

    lease = DeviceLease(gpu_device_name(str(torch.cuda.get_device_properties(0).uuid)))
    with lease.shared():
        ...
        torch.cuda.synchronize()
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from kernelrl_core.errors import MissingPrerequisite
from kernelrl_devices import leases

__all__ = ["DeviceLease", "lock_directory"]


def lock_directory() -> Path:
    """Directory of this user's lock files on this machine.

    Raises:
        MissingPrerequisite: something else has its place, or others may write to it. Locks in it would mean nothing.
    """
    directory = Path(tempfile.gettempdir()) / f"kernelrl-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    found = directory.lstat()
    wrong = ""
    if not stat.S_ISDIR(found.st_mode):
        wrong = "is not a directory"
    elif found.st_uid != os.getuid():
        wrong = f"belongs to user {found.st_uid}"
    elif found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        wrong = "can be written to by other users"
    if wrong:
        raise MissingPrerequisite(
            f"{directory} is for the device leases of user {os.getuid()} and {wrong}",
            fix=f"rm -rf {directory}, or set TMPDIR to a directory of your own",
            see="storage",
        )
    return directory


class DeviceLease(leases.DeviceLease):
    """Leases of one device, for all processes of this user on this machine.

    Args:
        device: name that is the same in every process, such as a GPU's UUID or `cpu`.
        check: called repeatedly while waiting; its exceptions end the wait.
    """

    def __init__(self, device: str, check: Callable[[], None] = lambda: None) -> None:
        super().__init__(lock_directory(), device, check)

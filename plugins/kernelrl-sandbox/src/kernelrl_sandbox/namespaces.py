"""Namespaces of a process: its user id, and the file system that it sees."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Sequence

__all__ = [
    "own_mounts",
    "private_places",
    "private_root",
    "private_view",
    "unshare",
]

_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    *(0x1, 0x2, 0x4, 0x20, 0x1000),
    *(0x4000, 0x40000),
)
_SYS_MOUNT_SETATTR = 442
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MNT_DETACH = 0x2
_NOBODY = 65534
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 0x1

_OPEN_PATH = os.O_PATH | os.O_CLOEXEC


def unshare(*, everything: bool, same_ids: bool = False) -> bool:
    """Move this process into new namespaces of users and processes; returns whether that was possible.

    Args:
        everything: also into new namespaces of mounts, network, IPC and host name.
        same_ids: whether the only user of the new namespace has the same number inside as outside; otherwise it is
            that of `nobody`.
    """
    rest = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNET if everything else 0
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | rest):
        return False
    user_inside, group_inside = (user, group) if same_ids else (_NOBODY, _NOBODY)
    for path, text in (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"{user_inside} {user} 1"),
        ("/proc/self/gid_map", f"{group_inside} {group} 1"),
    ):
        with open(path, "w") as file:
            file.write(text)
    return True


def own_mounts() -> bool:
    """Move this process into a new namespace of mounts alone, which only root may; returns whether it did."""
    return bool(_libc.unshare(_CLONE_NEWNS) == 0)


def private_view(scratch: str, shown: Sequence[str], nodes: Sequence[str] | None, closed: Sequence[str] = ()) -> bool:
    """Give this namespace a read-only file system with only the paths that a runner needs; returns whether that was
    possible.

    Args:
        scratch: directory that is created.
        shown: paths that exist.
        nodes: device nodes that exist; None for all.
        closed: directories that become empty although they may be below paths that exist.
    """
    # Every user must be able to enter the new directories: the user id of the candidate may change later.
    os.umask(0o022)
    all_devices = ["/dev"] if nodes is None else []
    # If the present `/proc` is missing or read-only, no other one can be mounted.
    if not private_root([*shown, *all_devices], ["/proc", *(nodes or ())]):
        return False
    os.makedirs(scratch, exist_ok=True)
    if nodes is not None:
        os.makedirs("/dev/shm", exist_ok=True)
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")
    flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
    done = bool(_libc.mount(b"none", b"/", None, flags, None) == 0)
    for directory in filter(os.path.isdir, closed):
        if f"{scratch}/".startswith(f"{directory}/"):
            continue
        done &= _empty(directory, "size=4k,nr_inodes=1,mode=755", _MS_RDONLY)
    return done


def private_places(scratch: str, scratch_mib: int = 64) -> bool:
    """Mount a private scratch directory, private shared memory and a `/proc` of this namespace; returns whether that
    was possible.

    They are removed with the namespace. The first process of a namespace of processes calls this function.

    Args:
        scratch_mib: size of the scratch directory, and of the shared memory, in MiB.
    """
    done = True
    for path in {scratch, "/dev/shm"}:
        if os.path.isdir(path):
            # The number of files is limited, because an empty file takes memory as well, which belongs to no process.
            done &= _empty(path, f"size={scratch_mib}m,nr_inodes={scratch_mib * 128},mode=700")
    return _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None) == 0 and done


def private_root(readable: Sequence[str], writable: Sequence[str], *, processes: bool = False) -> bool:
    """Replace the root directory by an empty one with only the given paths; returns whether that was possible.

    The working directory stays the same if it is one of them, and becomes the root otherwise.

    Args:
        readable: paths that cannot be written to.
        writable: paths that can.
        processes: whether there is a new `/proc`. It contains only processes, if the kernel can restrict it.
    """
    mount = _libc.mount
    if mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    root = "/tmp"
    # A user may lack the right to open a path whose name is known.
    existing = [path for path in (*readable, *writable) if os.path.exists(path)]
    shown = [(path, os.open(path, _OPEN_PATH), path in writable) for path in existing]
    here = os.getcwd()
    if not _empty(root, "size=1g,mode=755"):
        return False
    for path, handle, free in shown:
        if not _show(path, handle, root):
            return False
        if not free and not _set_read_only((root + path).encode()):
            # Linux before 5.12. The kernel refuses to change locked flags of a mount. Such a mount belongs to root, so
            # it stays protected.
            flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID
            mount(b"none", (root + path).encode(), None, flags, None)
        os.close(handle)
    os.makedirs(f"{root}/tmp", exist_ok=True)
    if processes:
        os.mkdir(f"{root}/proc")
        # Linux before 5.8 does not know this option.
        for options in (b"subset=pid", None):
            if mount(b"proc", f"{root}/proc".encode(), b"proc", _MS_NOSUID | _MS_NODEV, options) == 0:
                break
    _enter_root(root)
    with contextlib.suppress(OSError):
        os.chdir(here)
    return True


def _enter_root(root: str) -> None:
    """Make a mount the root of this namespace."""
    os.chdir(root)
    # The former root is mounted over the new one, and then removed.
    if _libc.syscall(_SYS_PIVOT_ROOT.get(os.uname().machine, -1), b".", b".") == 0:
        _libc.umount2(b".", _MNT_DETACH)
    else:
        # The root is the file system that the machine started with, which cannot be moved.
        os.chroot(root)
    os.chdir("/")


def _empty(directory: str, options: str, flags: int = 0) -> bool:
    flags |= _MS_NOSUID | _MS_NODEV
    return bool(_libc.mount(b"tmpfs", directory.encode(), b"tmpfs", flags, options.encode()) == 0)


def _show(path: str, handle: int, root: str = "") -> bool:
    """Mount an opened file or directory at its path below `root`; returns whether that was possible."""
    target = root + path
    if os.path.isdir(f"/proc/self/fd/{handle}"):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "w"):
            pass
    source = f"/proc/self/fd/{handle}".encode()
    return bool(_libc.mount(source, target.encode(), None, _MS_BIND | _MS_REC, None) == 0)


def _set_read_only(path: bytes) -> bool:
    """Make a mount and all mounts below it read-only; returns whether that was possible."""
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    done = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes))
    return bool(done == 0)

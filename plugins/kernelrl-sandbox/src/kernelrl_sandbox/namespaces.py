"""Namespaces of a process: its user id, and the file system that it sees."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import struct
import sys
import tempfile
from collections.abc import Mapping, Sequence

__all__ = [
    "closed_directories",
    "hidden_directories",
    "needed_paths",
    "own_mounts",
    "private_mounts",
    "private_places",
    "private_root",
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
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 0x1

_OPEN_PATH = os.O_PATH | os.O_CLOEXEC
_HIDDEN = ("/root", "/home", "/tmp", "/var/tmp", "/run", "/var/run")
"""Files of users, and sockets of services. A process that may write to such a socket has the rights of the service."""
_CACHE = "KERNELRL_CACHE_DIR"
_OWN = "kernelrl_"
"""Prefix of the packages of this project. Some of them contain solutions of tasks."""
_DRIVERS = ("/tmp/nvidia-mps", "/run/nvidia-persistenced", "/run/nvidia", "/run/opengl-driver", "/run/current-system")
"""Paths in hidden directories that drivers need."""


def unshare(*, everything: bool) -> bool:
    """Move this process into new namespaces of users and processes; returns whether that was possible.

    Args:
        everything: also into new namespaces of mounts, network, IPC and host name.
    """
    rest = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNET if everything else 0
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | rest):
        return False
    _map_user(user, group)
    return True


def _map_user(user: int, group: int) -> None:
    """Map the only user of the new namespace to a user without privileges, inside and outside."""
    for path, text in (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"65534 {user} 1"),
        ("/proc/self/gid_map", f"65534 {group} 1"),
    ):
        with open(path, "w") as file:
            file.write(text)


def hidden_directories() -> list[str]:
    """Directories of users and services, and the cache. A candidate sees only the paths in them that Python and its
    libraries need."""
    found = {*_HIDDEN, tempfile.gettempdir(), os.environ.get(_CACHE, "")}
    # In a container, the user may have no name.
    with contextlib.suppress(KeyError):
        found.add(pwd.getpwuid(os.getuid()).pw_dir)
    real = {os.path.realpath(path) for path in found if os.path.isdir(path)}
    return sorted(path for path in real if path != "/" and not any(_below(path, other) for other in real - {path}))


def needed_paths(hidden: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Paths in hidden directories that a candidate must see.

    These are Python's own directories, those of modules that are loaded or may be, and paths in variables.
    """
    named = {part for value in environment.values() for part in value.split(":") if part.startswith("/")}
    # The sandbox creates temporary directories of its own.
    named -= {environment.get(name, "") for name in ("HOME", "TMPDIR", _CACHE)}
    packages = {
        path
        for name, module in list(sys.modules.items())
        if "." not in name
        for path in [*(getattr(module, "__path__", None) or ()), getattr(module, "__file__", None) or ""]
    }
    wanted = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.executable, *sys.path, *packages, *named, *_DRIVERS}
    existing = {os.path.abspath(path) for path in wanted if path and os.path.exists(path)}
    # A link in a hidden directory is needed as well as its target.
    existing |= {os.path.realpath(path) for path in existing}
    needed = {path for path in existing if any(_below(path, directory) for directory in hidden)}
    return sorted(path for path in needed if not any(_below(path, other) for other in needed - {path}))


def closed_directories(shown: Sequence[str]) -> list[str]:
    """Directories that are empty for a candidate although they are not hidden: the cache, if it is below a shown path,
    and packages of this project that are not loaded now.

    Args:
        shown: from `needed_paths`.
    """
    cache = os.path.realpath(os.environ.get(_CACHE) or "/")
    found = {cache} if os.path.isdir(cache) and any(_below(cache, path) for path in shown) else set()
    for directory in filter(os.path.isdir, sys.path):
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            found |= {
                os.path.realpath(entry.path)
                for entry in entries
                if entry.name.startswith(_OWN) and entry.name.isidentifier() and entry.is_dir()
            }
    loaded = {
        os.path.realpath(path)
        for name, module in list(sys.modules.items())
        if name.startswith(_OWN)
        for path in getattr(module, "__path__", ())
    }
    return sorted(found - loaded)


def own_mounts() -> bool:
    """Move this process into a new namespace of mounts alone, which only root may; returns whether it did."""
    return bool(_libc.unshare(_CLONE_NEWNS) == 0)


def private_mounts(
    scratch: str, hidden: Sequence[str], shown: Sequence[str], nodes: Sequence[str] | None, closed: Sequence[str] = ()
) -> bool:
    """Give this namespace a read-only file system with few of the users' files and devices; returns whether that was
    possible.

    Args:
        scratch: directory that is created if it is hidden.
        hidden: directories that become empty.
        shown: paths in them that stay.
        nodes: device nodes that stay; None for all.
        closed: directories that become empty although they are below paths that stay.
    """
    mount = _libc.mount
    if mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    # Every user must be able to enter the new directories: the user id of the candidate may change later.
    os.umask(0o022)
    stay = {path: os.open(path, _OPEN_PATH) for path in (*shown, *(nodes or ())) if os.path.exists(path)}
    done = _set_read_only(b"/", clear=False)
    # If the present `/proc` is read-only, no other one can be mounted.
    done &= _set_read_only(b"/proc", clear=True)
    covers = [*hidden, *(["/dev"] if nodes is not None else [])]
    for directory in covers:
        done &= _empty(directory, "size=64k,nr_inodes=4k,mode=755")
    for path, handle in stay.items():
        done &= _show(path, handle)
        os.close(handle)
    with contextlib.suppress(OSError):
        os.makedirs(scratch, exist_ok=True)
    if nodes is not None:
        os.mkdir("/dev/shm")
        for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
            os.symlink(f"/proc/self/fd{target}", f"/dev/{name}")
    for directory in covers:
        flags = _MS_REMOUNT | _MS_BIND | _MS_RDONLY | _MS_NOSUID | _MS_NODEV
        done &= mount(b"none", directory.encode(), None, flags, None) == 0
    for directory in filter(os.path.isdir, closed):
        done &= _empty(directory, "size=4k,nr_inodes=1,mode=755", _MS_RDONLY)
    return done


def private_places(scratch: str) -> bool:
    """Mount a private scratch directory, private shared memory and a `/proc` of this namespace; returns whether that
    was possible.

    They are removed with the namespace. The first process of a namespace of processes calls this function.
    """
    done = True
    for path in {scratch, "/dev/shm"}:
        if os.path.isdir(path):
            # The number of files is limited, because an empty file takes memory as well, which belongs to no process.
            done &= _empty(path, "size=64m,nr_inodes=8k,mode=700")
    return _libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None) == 0 and done


def private_root(readable: Sequence[str], writable: Sequence[str], *, processes: bool = False) -> bool:
    """Replace the root directory by an empty one with only the given paths; returns whether that was possible.

    Args:
        readable: paths that cannot be written to.
        writable: paths that can.
        processes: whether there is a `/proc`. It contains only processes, if the kernel can restrict it.
    """
    mount = _libc.mount
    if mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    root = "/tmp"
    shown = [(path, os.open(path, _OPEN_PATH), path in writable) for path in (*readable, *writable)]
    here = os.getcwd()
    if not _empty(root, "size=1g,mode=755"):
        return False
    for path, handle, free in shown:
        if not _show(path, handle, root):
            return False
        if not free:
            # The kernel refuses to change locked flags of a mount. Such a mount belongs to root, so it stays protected.
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
    os.chroot(root)
    os.chdir(here)
    return True


def _below(path: str, directory: str) -> bool:
    return path.startswith(directory + "/")


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


def _set_read_only(path: bytes, *, clear: bool) -> bool:
    attributes = struct.pack("QQQQ", *((0, _MOUNT_ATTR_RDONLY) if clear else (_MOUNT_ATTR_RDONLY, 0)), 0, 0)
    done = _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes))
    return bool(done == 0)

"""Keeping a runner apart: namespaces, limits, descriptors, environment.

Each layer is used where the machine allows it; what it does not allow is reported in `Isolation.missing`. `enter` is
called in a fresh fork of the zygote, which must have a single thread, because a process with several may not make a
user namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import resource
import signal
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import NoReturn

__all__ = ["LAYERS", "confine", "die_with_parent", "enter", "isolation_level", "scrub"]

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
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38
_SYS_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE, _MOUNT_ATTR_RDONLY = -100, 0x8000, 0x1

LAYERS = ("limits", "user_namespace", "pid_namespace", "mount_namespace", "network_namespace", "seccomp")
"""Layers in the order of the isolation level they add to."""

_MAX_PROCESSES = 64
_RESERVED_IDS = 300
_DRIVER_MIB = 2048
"""Memory that a GPU's driver and its libraries need for themselves."""
_ORPHANS_S = 5.0
_LOOK_S = 0.25


def isolation_level(missing: list[str]) -> int:
    """Level of `Isolation` that is reached when these layers are missing."""
    for level, needed in enumerate((LAYERS[:1], LAYERS[1:3], LAYERS[3:5], LAYERS[5:])):
        if set(needed) & set(missing):
            return level
    return 4


def die_with_parent() -> None:
    """End this process when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def enter(*, memory_mib: int, on_gpu: bool, cpu_s: int, scratch: str, keep: set[int], status: int) -> list[str]:
    """Shut this process in; returns in a process of its own with what could not be done.

    The calling process stays behind as the supervisor of the new one. It reports how that ended, and ends itself when
    nothing is left of what it started. SIGTERM makes it kill the process; killing the supervisor ends everything as
    well, but nobody knows when. Nothing returns there.

    Args:
        memory_mib: limit of the memory beyond what the zygote has, in MiB.
        on_gpu: memory is what is writable and private, because a GPU driver reserves address space without using it;
            elsewhere all address space counts.
        cpu_s: limit of processor time, in seconds.
        scratch: directory that becomes the private temporary directory.
        keep: descriptors that stay open.
        status: descriptor on which the supervisor reports how the process ended: `exit N`, `signal N`, or `crowd` when
            it had to be killed for the number of its processes.
    """
    missing: list[str] = []
    os.setsid()
    die_with_parent()
    _close_others({*keep, status})
    user, group = os.getuid(), os.getgid()
    rest = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNET
    if _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | rest) == 0:
        _map_user(user, group)
        private = True
    elif _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID) == 0:
        _map_user(user, group)
        private = False
        missing += ["mount_namespace", "network_namespace"]
    else:
        private = False
        missing += ["user_namespace", "pid_namespace", "mount_namespace", "network_namespace"]
    # Where there is no namespace of processes, orphans come to the supervisor.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child:
        _supervise(child, status)
    os.close(status)
    die_with_parent()
    if private and not _private_mounts(scratch):
        missing.append("mount_namespace")
    os.setsid()
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    missing += _limit(memory_mib, cpu_s, on_gpu=on_gpu)
    missing.append("seccomp")
    return missing


def confine(
    *, memory_mib: int, cpu_s: int, file_mib: int, processes: int, readable: Sequence[str], writable: Sequence[str]
) -> None:
    """Shut the program in that this process is about to become; for a fork with a single thread.

    It sees a file system of the named directories alone, no network and no other process. The calling process stays
    behind, waits and ends with the program's status. What the machine does not allow is left out.

    Args:
        readable: directories and files that are visible and cannot be written to.
        writable: directories that can.
    """
    os.setsid()
    die_with_parent()
    # What is timed beside it goes first.
    os.nice(10)
    user, group = os.getuid(), os.getgid()
    rest = _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNET
    private = _libc.unshare(_CLONE_NEWUSER | _CLONE_NEWPID | rest) == 0
    if private:
        _map_user(user, group)
        child = os.fork()
        if child:
            # Whoever started this process waits for its descriptors to close.
            _close_others(set())
            _, ended = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(ended)
            os._exit(code if code >= 0 else 128 - code)
        die_with_parent()
        _private_root(readable, writable)
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    limits = {
        resource.RLIMIT_AS: memory_mib << 20,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: file_mib << 20,
        resource.RLIMIT_NPROC: processes,
        resource.RLIMIT_CORE: 0,
    }
    _set_limits(limits)


def _private_root(readable: Sequence[str], writable: Sequence[str]) -> bool:
    """Replace the root by an empty one in which only the given paths stand."""
    mount = _libc.mount
    if mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    root = "/tmp"
    shown = [(path, os.open(path, os.O_PATH), path in writable) for path in (*readable, *writable)]
    here = os.getcwd()
    if mount(b"tmpfs", root.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"size=1g,mode=755"):
        return False
    for path, handle, free in shown:
        target = root + path
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target, "w"):
                pass
        source = f"/proc/self/fd/{handle}".encode()
        if mount(source, target.encode(), None, _MS_BIND | _MS_REC, None):
            return False
        if not free:
            # Flags of the mount below that were locked have to stay; what cannot be made read-only is root's anyway.
            mount(b"none", target.encode(), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID, None)
        os.close(handle)
    for directory in ("proc", "tmp"):
        os.makedirs(f"{root}/{directory}", exist_ok=True)
    if mount(b"proc", f"{root}/proc".encode(), b"proc", _MS_NOSUID | _MS_NODEV, None):
        return False
    os.chroot(root)
    os.chdir(here)
    return True


def _supervise(child: int, status: int) -> NoReturn:
    crowded = False

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def look(*_: object) -> None:
        nonlocal crowded
        # Root may start any number. The candidate's own `/proc`, and no other, does not know this process.
        if not os.path.exists("/proc/self") and sum(map(str.isdigit, os.listdir("/proc"))) > _MAX_PROCESSES:
            crowded = True
            kill()

    signal.signal(signal.SIGTERM, kill)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    _close_others({status})
    # The first process of a namespace has ended when all others have.
    _, ended = os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(ended)
    how = "crowd" if crowded else f"exit {code}" if code >= 0 else f"signal {-code}"
    with contextlib.suppress(OSError):
        os.write(status, how.encode())
    _end_orphans()
    os._exit(0)


def _end_orphans() -> None:
    """Kill the children of this process, and theirs, which become its own."""
    until = time.monotonic() + _ORPHANS_S
    while time.monotonic() < until:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        with contextlib.suppress(OSError):
            with open(f"/proc/self/task/{os.getpid()}/children") as file:
                children = [int(word) for word in file.read().split()]
            for child in children:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.002)


def _map_user(user: int, group: int) -> None:
    # A user without privileges inside and outside: id 65534 inside stands for the user who runs kernelrl.
    for path, text in (
        ("/proc/self/setgroups", "deny"),
        ("/proc/self/uid_map", f"65534 {user} 1"),
        ("/proc/self/gid_map", f"65534 {group} 1"),
    ):
        with open(path, "w") as file:
            file.write(text)


def _private_mounts(scratch: str) -> bool:
    mount = _libc.mount
    if mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None):
        return False
    # Whoever runs kernelrl may write to files, and candidates run as the same user: nothing but the scratch directory
    # and shared memory can be written to, and both go with the namespace.
    written = _read_only_root()
    for path in {scratch, "/dev/shm"}:
        if os.path.isdir(path):
            written &= mount(b"tmpfs", path.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, b"size=64m,mode=700") == 0
    return mount(b"proc", b"/proc", b"proc", _MS_NOSUID | _MS_NODEV, None) == 0 and written


def _read_only_root() -> bool:
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    return _libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, attributes, len(attributes)) == 0


def _limit(memory_mib: int, cpu_s: int, *, on_gpu: bool) -> list[str]:
    # The limit of processes does not bind root; that of process ids does, where each namespace has its own. After the
    # first round ids begin at 300, and that is where the first round begins here.
    if os.getpid() == 1 and _kernel_version() >= (6, 14):
        tasks = max(100, 2 * (os.cpu_count() or 1))
        for name, value in (("pid_max", _RESERVED_IDS + tasks), ("ns_last_pid", _RESERVED_IDS)):
            with contextlib.suppress(OSError), open(f"/proc/sys/kernel/{name}", "w") as file:
                file.write(str(value))
    with open("/proc/self/statm") as file:
        pages = [int(word) for word in file.read().split()]
    mapped, data = pages[0] * resource.getpagesize(), pages[5] * resource.getpagesize()
    limits = {
        resource.RLIMIT_AS: resource.RLIM_INFINITY if on_gpu else mapped + memory_mib * 2**20,
        resource.RLIMIT_DATA: data + (memory_mib + _DRIVER_MIB) * 2**20 if on_gpu else resource.RLIM_INFINITY,
        resource.RLIMIT_NPROC: _MAX_PROCESSES,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: 64 * 2**20,
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    return [] if _set_limits(limits) else ["limits"]


def _kernel_version() -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])


def _set_limits(limits: Mapping[int, int]) -> bool:
    done = True
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        if (hard != resource.RLIM_INFINITY and value > hard) or value == resource.RLIM_INFINITY:
            value = hard
        try:
            resource.setrlimit(limit, (value, value))
        except (OSError, ValueError):
            done = False
    return done


def _close_others(keep: set[int]) -> None:
    edges = sorted({2, *keep}) if keep else [2]
    for low, high in zip(edges, [*edges[1:], 1 << 20], strict=True):
        if high > low + 1:
            os.closerange(low + 1, min(high, _max_descriptor()))


def _max_descriptor() -> int:
    return min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16)


def scrub(scratch: str, environment: dict[str, str]) -> None:
    """Forget arguments and environment; only `environment` and a private home are left."""
    os.environ.clear()
    os.environ.update(environment, HOME=scratch, TMPDIR=scratch, PATH="/usr/bin:/bin")
    sys.argv[:] = ["candidate"]
    os.chdir(scratch)
    os.umask(0o077)

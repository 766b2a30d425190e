"""Keeping a runner or a compiler apart: the layers in their order.

Each layer is used where the machine allows it; what it does not allow is reported in `Isolation.missing`. The parts:
`namespaces` (users, processes, mounts, network), `devices` (nodes of one GPU), `privileges` (root, capabilities),
`limits` (memory, time, processes) and `seccomp` (system calls).
`docs/isolation.md` says what each is for.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import stat
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

import attrs

from kernelrl_judge.isolation import limits, namespaces, privileges, seccomp
from kernelrl_judge.isolation.devices import device_nodes
from kernelrl_judge.isolation.freezing import descendants

__all__ = ["confine", "enter", "prepare", "scrub"]

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_S = 5.0
_LOOK_S = 0.25
_BLOCK_BYTES = 512
_KEPT_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""Which GPU a runner uses is no secret, and without them it would be the first."""


@attrs.frozen
class _Surroundings:
    """What of a machine is the same for all runners of a zygote."""

    hidden: list[str]
    """Directories with files of users."""
    shown: list[str]
    """Paths in them that a runner needs."""
    closed: list[str]
    """Directories that no runner needs, wherever they are."""
    leaves_root: bool
    """Root's runners can live as somebody else."""


@functools.cache
def prepare() -> _Surroundings:
    """Find out what this machine allows. A zygote calls it once all modules are loaded; its forks know it then."""
    hidden = namespaces.hidden_directories()
    shown = namespaces.needed_paths(hidden, os.environ)
    closed = namespaces.closed_directories(shown)
    return _Surroundings(
        hidden=hidden,
        shown=shown,
        closed=closed,
        leaves_root=os.getuid() == 0 and _lives_without_root(hidden, shown, closed),
    )


def _lives_without_root(hidden: list[str], shown: list[str], closed: list[str]) -> bool:
    """Whether a fork that is no longer root can be shut in and still read all that is loaded here."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fit = False
    with contextlib.suppress(BaseException):
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        read = [path for path in (*files, *sys.path, *shown) if path and os.path.exists(path)]
        fit = namespaces.own_mounts() and namespaces.private_mounts("/tmp", hidden, shown, None, closed)
        fit = fit and privileges.become_nobody() and namespaces.unshare(everything=True)
        privileges.drop_capabilities()
        # What a driver of a GPU needs has to be open to all as well.
        gpu = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(("nvidia", "kfd", "dxg"))]
        fit &= all(os.access(path, os.R_OK) for path in read)
        fit &= all(os.access(path, os.R_OK | os.W_OK) for path in gpu if not os.path.isdir(path))
    os._exit(not fit)


def enter(
    *, memory_mib: int, on_gpu: bool, cpu_s: int, scratch: str, keep: set[int], status: int, processes: bool = True
) -> list[str]:
    """Shut this process in; returns in a process of its own with what could not be done.

    It must have a single thread, because a process with several may not make a user namespace. The calling process
    stays behind as the supervisor of the new one. It reports how that ended, and ends itself when nothing is left of
    what it started. SIGTERM makes it kill the process; killing the supervisor ends everything as well, but nobody knows
    when. Nothing returns there.

    Args:
        memory_mib: limit of the memory beyond what the zygote has, in MiB, for each process and for all together.
        on_gpu: memory is what is writable and private, because a GPU driver reserves address space without using it;
            elsewhere all address space counts.
        cpu_s: limit of processor time, in seconds.
        scratch: directory that becomes the private temporary directory.
        keep: descriptors that stay open.
        status: descriptor on which the supervisor reports how the process ended: `exit N`, `signal N`, or `crowd` or
            `memory` when it had to be killed for the number or the memory of its processes.
        processes: whether it may start others.
    """
    missing: list[str] = []
    around = prepare()
    os.setsid()
    privileges.close_others({*keep, status})
    allowed_mib = memory_mib + (limits.DRIVER_MIB if on_gpu else 0)
    nodes = device_nodes(os.environ, on_gpu=on_gpu)
    mount = functools.partial(
        namespaces.private_mounts, scratch, around.hidden, around.shown, nodes, closed=around.closed
    )
    mounted = False
    if around.leaves_root:
        # Only root can open the way to what stands in directories of root's own.
        mounted = namespaces.own_mounts() and mount()
    if os.getuid() == 0 and not (mounted and privileges.become_nobody()):
        missing.append("dropped_uid")
    privileges.die_with_parent()
    # Its files in `/proc` are root's until then, so that nobody reads the memory of the zygote.
    privileges.open_to_itself()
    private = namespaces.unshare(everything=True)
    if not private:
        missing += ["mount_namespace", "network_namespace"]
        if not namespaces.unshare(everything=False):
            missing += ["user_namespace", "pid_namespace"]
    elif not mounted:
        mounted = mount()
    if not mounted or nodes is None:
        missing.append("device_nodes")
    # Where there is no namespace of processes, orphans come to the supervisor.
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child:
        _supervise(child, status, allowed_mib, [file for file in keep if stat.S_ISREG(os.fstat(file).st_mode)])
    os.close(status)
    privileges.die_with_parent()
    if private and not (namespaces.private_places(scratch) and mounted):
        missing.append("mount_namespace")
    privileges.be_killed_first()
    os.setsid()
    if not limits.limit_runner(memory_mib, cpu_s, on_gpu=on_gpu):
        missing.append("limits")
    missing += _give_up_rights(memory_files=on_gpu, processes=processes)
    return [layer for layer in privileges.LAYERS if layer in missing]


def confine(
    *,
    memory_mib: int,
    cpu_s: int,
    file_mib: int,
    processes: int,
    readable: Sequence[str],
    writable: Sequence[str],
    knows_itself: bool,
) -> None:
    """Shut the program in that this process is about to become; for a fork with a single thread.

    It sees a file system of the named directories alone, no network and no other process. The calling process stays
    behind, waits and ends with the program's status. What the machine does not allow is left out.

    Args:
        readable: directories and files that are visible and cannot be written to.
        writable: directories that can.
        knows_itself: whether it has a `/proc`.
    """
    os.setsid()
    privileges.die_with_parent()
    privileges.be_killed_first()
    # What is timed beside it goes first.
    os.nice(10)
    if namespaces.unshare(everything=True):
        child = os.fork()
        if child:
            # Whoever started this process waits for its descriptors to close.
            privileges.close_others(set())
            _, ended = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(ended)
            os._exit(code if code >= 0 else 128 - code)
        privileges.die_with_parent()
        namespaces.private_root(readable, writable, processes=knows_itself)
    limits.limit_build(memory_mib, cpu_s, file_mib, processes)
    _give_up_rights()


def _give_up_rights(*, memory_files: bool = True, processes: bool = True) -> list[str]:
    missing = [] if privileges.drop_capabilities() else ["capabilities"]
    privileges.close_to_others()
    return missing if seccomp.install(memory_files=memory_files, processes=processes) else [*missing, "seccomp"]


def _supervise(child: int, status: int, memory_mib: int, files: list[int]) -> NoReturn:
    """Wait for a process and what it starts, and look at what they take.

    Args:
        files: of memory, which are the judge's.
    """
    privileges.close_to_others()
    reason = ""
    # Forks share the pages of the zygote.
    common = limits.held_bytes("self")

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def look(*_: object) -> None:
        nonlocal reason
        # The candidate's own `/proc`, and no other, does not know this process.
        alone = not os.path.exists("/proc/self")
        processes = [int(name) for name in os.listdir("/proc") if name.isdigit()] if alone else descendants(os.getpid())
        lent = sum(os.fstat(file).st_blocks * _BLOCK_BYTES for file in files)
        if len(processes) > limits.MAX_PROCESSES:
            reason = "crowd"
        elif sum(max(0, limits.held_bytes(process, lent) - common) for process in processes) > memory_mib << 20:
            reason = "memory"
        if reason:
            kill()

    signal.signal(signal.SIGTERM, kill)
    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, _LOOK_S, _LOOK_S)
    privileges.close_others({status, *files})
    # The first process of a namespace has ended when all others have.
    _, ended = os.waitpid(child, 0)
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(ended)
    how = reason or (f"exit {code}" if code >= 0 else f"signal {-code}")
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


def scrub(scratch: str, environment: dict[str, str]) -> None:
    """Forget arguments and environment; only `environment` and a private home are left."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(environment, HOME=scratch, TMPDIR=scratch, PATH="/usr/bin:/bin")
    sys.argv[:] = ["candidate"]
    os.chdir(scratch)
    os.umask(0o077)

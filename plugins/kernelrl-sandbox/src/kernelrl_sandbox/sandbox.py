"""The sandbox of a runner (`enter`) and of a compiler (`confine`): applies the isolation layers in their order.

Each layer is used if the machine permits it; `enter` returns the others. The layers are in `namespaces` (users,
processes, mounts, network), `devices` (nodes of one GPU), `privileges` (user id, capabilities), `limits` (memory, time,
processes) and `seccomp` (system calls). `docs/security.md` describes their purpose.
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

from kernelrl_sandbox import limits, namespaces, privileges, seccomp, visible
from kernelrl_sandbox.devices import device_nodes
from kernelrl_sandbox.freezing import descendants

__all__ = ["confine", "enter", "prepare", "scrub"]

_libc = ctypes.CDLL(None, use_errno=True)

_PR_SET_CHILD_SUBREAPER = 36
_ORPHANS_S = 5.0
_CHECK_S = 0.25
_BLOCK_BYTES = 512
_KEPT_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""A runner without these variables would use the first GPU."""


@attrs.frozen
class _Surroundings:
    """Facts about the machine that are the same for all runners of a zygote."""

    shown: list[str]
    """Paths that a runner sees."""
    closed: list[str]
    """Directories that no runner needs, wherever they are."""
    leaves_root: bool
    """Whether runners that root starts can get another user id."""


@functools.cache
def prepare(*, on_gpu: bool) -> _Surroundings:
    """Read the facts about this machine. A zygote calls it after it has loaded all modules, for all its forks.

    Args:
        on_gpu: whether its forks use a GPU.
    """
    shown = visible.paths_of_runner(os.environ, on_gpu=on_gpu)
    closed = visible.closed_directories()
    return _Surroundings(
        shown=shown,
        closed=closed,
        leaves_root=os.getuid() == 0 and _lives_without_root(shown, closed),
    )


def _lives_without_root(shown: list[str], closed: list[str]) -> bool:
    """Whether a fork without root's user id can enter the sandbox and still read all modules that are loaded here."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    fit = False
    with contextlib.suppress(BaseException):
        modules = [module for name, module in list(sys.modules.items()) if name != "__main__"]
        files = [getattr(module, "__file__", None) for module in modules]
        read = [path for path in (sys.executable, *files) if path and os.path.exists(path)]
        fit = namespaces.own_mounts() and namespaces.private_view("/tmp", shown, None, closed)
        fit = fit and privileges.become_nobody() and namespaces.unshare(everything=True)
        privileges.drop_capabilities()
        # The driver of a GPU needs its device nodes.
        gpu = [f"/dev/{name}" for name in os.listdir("/dev") if name.startswith(("nvidia", "kfd", "dxg"))]
        fit &= all(os.access(path, os.R_OK) for path in read)
        fit &= all(os.access(path, os.R_OK | os.W_OK) for path in gpu if not os.path.isdir(path))
    os._exit(not fit)


def enter(
    *, memory_mib: int, on_gpu: bool, cpu_s: int, scratch: str, keep: set[int], status: int, processes: bool = True
) -> list[str]:
    """Enter the sandbox: fork a process inside it, in which this function returns the missing layers.

    The calling process must have a single thread, because a process with several cannot create a user namespace. It
    becomes the supervisor of the new process, and this function never returns in it. The supervisor reports how the
    process ended, and ends when all processes of the sandbox have ended. On SIGTERM it kills them. If the supervisor is
    killed, they are killed as well, but at an unknown time.

    Args:
        memory_mib: limit of the memory beyond that of the calling process, in MiB, for each process and for all
            together.
        on_gpu: limit private and writable memory, because a GPU driver reserves address space without using it. On the
            CPU, all address space is limited.
        cpu_s: limit of CPU time, in seconds.
        scratch: directory that becomes the private temporary directory.
        keep: descriptors that stay open.
        status: descriptor on which the supervisor reports how the process ended: `exit N`, `signal N`, or `crowd` or
            `memory` if it was killed because of the number or the memory of its processes.
        processes: whether it may start other processes.
    """
    missing: list[str] = []
    around = prepare(on_gpu=on_gpu)
    os.setsid()
    privileges.close_others({*keep, status})
    allowed_mib = memory_mib + (limits.DRIVER_MIB if on_gpu else 0)
    nodes = device_nodes(os.environ, on_gpu=on_gpu)
    mount = functools.partial(namespaces.private_view, scratch, around.shown, nodes, around.closed)
    mounted = False
    if around.leaves_root:
        # Only root can open paths in directories that belong to root.
        mounted = namespaces.own_mounts() and mount()
    if os.getuid() == 0 and not (mounted and privileges.become_nobody()):
        missing.append("dropped_uid")
    privileges.die_with_parent()
    # Until now its files in `/proc` belong to root, so that no other process reads the memory of the zygote.
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
    # Without a namespace of processes, the supervisor becomes the parent of orphans.
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
    # NVIDIA's driver makes a local socket when it makes a context. None of the machine's is visible here.
    missing += _give_up_rights(memory_files=on_gpu, processes=processes, local_sockets=on_gpu)
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
    """Confine the program that this process executes next; for a fork with a single thread, before `exec`.

    The program sees only the named directories, no network and no other process. The calling process waits for it and
    ends with its status. Layers that the machine does not permit are skipped.

    Args:
        memory_mib: limit of the address space.
        cpu_s: limit of CPU time, in seconds.
        file_mib: limit of the size of a file.
        processes: limit of the number of processes.
        readable: directories and files that are visible and cannot be written to.
        writable: directories that can.
        knows_itself: whether it has a `/proc`.
    """
    os.setsid()
    privileges.die_with_parent()
    privileges.be_killed_first()
    # Timed kernels on the same machine have priority.
    os.nice(10)
    if namespaces.unshare(everything=True):
        child = os.fork()
        if child:
            # The parent of this process waits until its descriptors are closed.
            privileges.close_others(set())
            _, ended = os.waitpid(child, 0)
            code = os.waitstatus_to_exitcode(ended)
            os._exit(code if code >= 0 else 128 - code)
        privileges.die_with_parent()
        namespaces.private_root(readable, writable, processes=knows_itself)
    limits.limit_build(memory_mib, cpu_s, file_mib, processes)
    _give_up_rights()


def _give_up_rights(*, memory_files: bool = True, processes: bool = True, local_sockets: bool = False) -> list[str]:
    missing = [] if privileges.drop_capabilities() else ["capabilities"]
    privileges.close_to_others()
    filtered = seccomp.install(memory_files=memory_files, processes=processes, local_sockets=local_sockets)
    return missing if filtered else [*missing, "seccomp"]


def _supervise(child: int, status: int, memory_mib: int, files: list[int]) -> NoReturn:
    """Wait for a process and the processes that it starts, and enforce their limits together.

    Args:
        files: memory files of the judge, which do not count.
    """
    privileges.close_to_others()
    reason = ""
    # Forks share the pages of the zygote.
    common_bytes = limits.held_bytes("self")

    def kill(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)

    def check(*_: object) -> None:
        nonlocal reason
        # The `/proc` of the candidate's namespace does not contain this process.
        is_namespace = not os.path.exists("/proc/self")
        if is_namespace:
            processes = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        else:
            processes = descendants(os.getpid())
        if len(processes) > limits.MAX_PROCESSES:
            reason = "crowd"
        elif held_bytes(processes) > memory_mib << 20:
            reason = "memory"
        if reason:
            kill()

    def held_bytes(processes: list[int]) -> int:
        file_bytes = sum(os.fstat(file).st_blocks * _BLOCK_BYTES for file in files)
        return sum(max(0, limits.held_bytes(process, file_bytes) - common_bytes) for process in processes)

    signal.signal(signal.SIGTERM, kill)
    signal.signal(signal.SIGALRM, check)
    signal.setitimer(signal.ITIMER_REAL, _CHECK_S, _CHECK_S)
    privileges.close_others({status, *files})
    # The first process of a namespace ends after all others.
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
    """Kill the children of this process. Their children become its own, and are killed as well."""
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
    """Remove the arguments and the environment of this process, except `environment` and a private home directory."""
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    os.environ.clear()
    os.environ.update(kept)
    os.environ.update(environment, HOME=scratch, TMPDIR=scratch, PATH="/usr/bin:/bin")
    sys.argv[:] = ["candidate"]
    os.chdir(scratch)
    os.umask(0o077)

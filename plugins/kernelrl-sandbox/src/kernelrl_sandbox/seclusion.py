"""The sandbox of a process that executes code of others and starts sandboxes itself, such as a confined judge.

`seclude` is called before the process reads anything: it takes the file system, the network and the other processes
away. Processes that it forks then can still enter sandboxes (`sandbox.enter`). `give_up_namespaces` takes that away as
well, once these are forked.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import signal
from collections.abc import Iterable
from typing import NoReturn

from kernelrl_sandbox import namespaces, privileges, seccomp, visible
from kernelrl_sandbox.devices import device_nodes

__all__ = ["SCRATCH", "give_up_namespaces", "seclude"]

SCRATCH = "/tmp/kernelrl-judge"
"""The private scratch directory inside."""
_SCRATCH_MIB = 512
_MAX_PROCESSES = 512


def seclude(packages: Iterable[str], *, on_gpu: bool) -> list[str]:
    """Move this process into a sandbox: fork a process inside it, in which this function returns the missing layers.

    The calling process must have a single thread. It waits for the new process and ends with its status; this function
    never returns in it. If it is killed, all processes inside are killed as well.

    Inside there is no network, no other process and no file but programs, libraries, Python with its packages and
    drivers (read-only), and the private directory `SCRATCH`, which is in memory.

    Args:
        packages: names of packages that are visible although they are not loaded.
        on_gpu: whether the nodes and files of a GPU's driver are visible.
    """
    missing: list[str] = []
    # Programs of the user are in directories of `PATH`.
    environment = {name: value for name, value in os.environ.items() if name != "PATH"}
    found = visible.paths_of_runner(environment, on_gpu=on_gpu)
    shown = visible.outermost([*found, *_directories(packages)])
    nodes = device_nodes(os.environ, on_gpu=on_gpu)
    mounted = False
    if os.getuid() == 0:
        # Only root can open paths in directories that belong to root. Root's user id would keep rights over settings of
        # the kernel, also without capabilities.
        mounted = namespaces.own_mounts() and namespaces.private_view(SCRATCH, shown, nodes)
        if not (mounted and privileges.become_nobody()):
            missing.append("dropped_uid")
    privileges.die_with_parent()
    privileges.open_to_itself()
    private = namespaces.unshare(everything=True, same_ids=True)
    if not private:
        missing += ["user_namespace", "pid_namespace", "mount_namespace", "network_namespace"]
    elif not mounted:
        mounted = namespaces.private_view(SCRATCH, shown, nodes)
    if not mounted or nodes is None:
        missing.append("device_nodes")
    if child := os.fork():
        _end_like(child)
    privileges.die_with_parent()
    if private and not (namespaces.private_places(SCRATCH, _SCRATCH_MIB) and mounted):
        missing.append("mount_namespace")
    if not privileges.drop_capabilities():
        missing.append("capabilities")
    # The first process of a namespace ignores signals, and inherits orphans. So the judge is its second one.
    if child := os.fork():
        _end_like(child)
    privileges.close_to_others()
    return [layer for layer in privileges.LAYERS if layer in missing]


def give_up_namespaces(memory_bytes: int, *, on_gpu: bool) -> list[str]:
    """Limit this process and filter its system calls; returns the missing layers.

    Afterwards no process that it forks can enter a sandbox.

    Args:
        memory_bytes: limit of the private memory beyond that of this process now.
        on_gpu: whether local sockets are allowed, which the driver of a GPU makes. None of the machine's is visible.
    """
    missing = []
    privileges.be_killed_first()
    with open("/proc/self/statm") as file:
        data_bytes = int(file.read().split()[5]) * resource.getpagesize()
    limits = {
        resource.RLIMIT_DATA: data_bytes + memory_bytes,
        resource.RLIMIT_NPROC: _MAX_PROCESSES,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        hard = resource.getrlimit(limit)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(limit, (bound, bound))
        except (OSError, ValueError):
            missing.append("limits")
    if not seccomp.install(local_sockets=on_gpu):
        missing.append("seccomp")
    return missing


def _directories(packages: Iterable[str]) -> list[str]:
    """Directories of packages, of which those that are missing have none."""
    found: list[str] = []
    for name in packages:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            found += (spec.submodule_search_locations or [spec.origin or ""]) if spec is not None else []
    return [os.path.realpath(path) for path in found if os.path.exists(path)]


def _end_like(child: int) -> NoReturn:
    """Wait for a process, reap orphans meanwhile, and end with its status."""
    privileges.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    privileges.close_others(set())
    ended = 0
    while ended != child:
        ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)

"""Limits of a process and of the processes that it starts: memory, CPU time, files, processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Mapping

__all__ = ["DRIVER_MIB", "MAX_PROCESSES", "held_bytes", "limit_build", "limit_runner"]

MAX_PROCESSES = 32
"""A runner with more processes is ended. Otherwise a candidate that forks without end would use all CPU cores until its
time is over."""
_MAX_TASKS = 64
DRIVER_MIB = 2048
"""Memory that a GPU's driver and its libraries need for themselves."""
_RESERVED_IDS = 300
_HELD = re.compile(r"^Rss(Anon|Shmem):\s*(\d+) kB$", re.MULTILINE)


def limit_runner(memory_mib: int, cpu_s: int, *, on_gpu: bool) -> bool:
    """Limit a runner; returns whether all limits hold.

    Args:
        memory_mib: limit of the memory beyond that of this process now.
        cpu_s: limit of the CPU time.
        on_gpu: limit private and writable memory, because a GPU driver reserves address space without using it. On the
            CPU, all address space is limited.
    """
    # The limit of processes does not bind root. The limit of process ids does, if the namespace has its own. When all
    # ids were used once, they begin again at 300; here they begin there at once.
    if os.getpid() == 1 and [*map(int, re.findall(r"\d+", os.uname().release)[:2])] >= [6, 14]:
        tasks = max(100, 2 * (os.cpu_count() or 1))
        for name, value in (("pid_max", _RESERVED_IDS + tasks), ("ns_last_pid", _RESERVED_IDS)):
            with contextlib.suppress(OSError), open(f"/proc/sys/kernel/{name}", "w") as file:
                file.write(str(value))
    with open("/proc/self/statm") as file:
        pages = [int(word) for word in file.read().split()]
    mapped, data = pages[0] * resource.getpagesize(), pages[5] * resource.getpagesize()
    return _set_limits(
        {
            resource.RLIMIT_AS: resource.RLIM_INFINITY if on_gpu else mapped + memory_mib * 2**20,
            resource.RLIMIT_DATA: data + (memory_mib + DRIVER_MIB) * 2**20 if on_gpu else resource.RLIM_INFINITY,
            resource.RLIMIT_NPROC: _MAX_TASKS,
            resource.RLIMIT_CPU: cpu_s,
            resource.RLIMIT_FSIZE: 64 * 2**20,
            resource.RLIMIT_NOFILE: 64,
            # Each timer takes one. Thousands that end at the same time would use a CPU core without being counted.
            resource.RLIMIT_SIGPENDING: _MAX_TASKS,
            resource.RLIMIT_CORE: 0,
        }
    )


def limit_build(memory_mib: int, cpu_s: int, file_mib: int, processes: int) -> bool:
    """Limit a compiler; returns whether all limits hold."""
    return _set_limits(
        {
            resource.RLIMIT_AS: memory_mib << 20,
            resource.RLIMIT_CPU: cpu_s,
            resource.RLIMIT_FSIZE: file_mib << 20,
            resource.RLIMIT_NPROC: processes,
            resource.RLIMIT_CORE: 0,
        }
    )


def held_bytes(process: int | str, shared: int = 0) -> int:
    """Private and shared memory of a process, without files of a disk; 0 if the process is gone.

    Args:
        process: its number, or `self`.
        shared: bytes of shared memory that do not count.
    """
    try:
        with open(f"/proc/{process}/status") as file:
            held = {name: int(kib) << 10 for name, kib in _HELD.findall(file.read())}
    except OSError:
        return 0
    return held.get("Anon", 0) + max(0, held.get("Shmem", 0) - shared)


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

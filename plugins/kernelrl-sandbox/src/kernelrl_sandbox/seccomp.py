"""A filter of system calls for processes of untrusted code: runners and compilers.

It denies calls that neither a kernel nor a compiler needs, and calls with which processes have left sandboxes: tracing
and reading other processes, namespaces and mounts, BPF, performance events, io_uring, keys, kernel modules, clocks,
sockets of every family, and semaphores and messages that the system keeps. It also denies calls that report which
pages of files are in memory, because a candidate could leave marks there. All other calls are allowed: no list knows in
advance the calls of GPU drivers, and a driver that fails in a strange way costs more than an unnecessary call, which
the other layers still stop.

A denied call fails with EPERM, as for a user without rights. Where the C library has another call for the same purpose,
a denied call fails with ENOSYS, as on a system that does not have it. Calls of another architecture end the process,
because their numbers have other meanings.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

__all__ = ["DENIED", "install"]

_libc = ctypes.CDLL(None, use_errno=True)

_SET_MODE_FILTER, _ALL_THREADS = 1, 1
_KEEP_SPEED = 1 << 2
"""Without this flag some kernels disable speculation under a filter, and a candidate would be slower than the
reference."""
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16
_X32_BIT = 0x40000000
_AF_UNIX = 1
_NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
"""Flags of `clone` for namespaces of mounts, cgroups, host name, IPC, users, processes and network."""


def _numbers(table: str) -> dict[str, int]:
    return {name: int(number) for name, _, number in (entry.partition("=") for entry in table.split())}


# Calls since Linux 5.1 have one number everywhere.
_COMMON = """
    pidfd_getfd=438 open_tree=428 move_mount=429 fsopen=430 fsconfig=431 fsmount=432 fspick=433
    mount_setattr=442 quotactl_fd=443 memfd_secret=447 io_uring_setup=425 io_uring_enter=426
    io_uring_register=427 process_madvise=440 process_mrelease=448 open_tree_attr=467 cachestat=451
"""
DENIED = {
    "x86_64": _numbers(
        """
        ptrace=101 syslog=103 personality=135 uselib=134 vhangup=153 modify_ldt=154 pivot_root=155 adjtimex=159
        chroot=161 acct=163 settimeofday=164 mount=165 umount2=166 swapon=167 swapoff=168 reboot=169
        sethostname=170 setdomainname=171 iopl=172 ioperm=173 init_module=175 delete_module=176 quotactl=179
        lookup_dcookie=212 clock_settime=227 kexec_load=246 add_key=248 request_key=249 keyctl=250 unshare=272
        perf_event_open=298 fanotify_init=300 open_by_handle_at=304 clock_adjtime=305 setns=308
        process_vm_readv=310 process_vm_writev=311 kcmp=312 finit_module=313 kexec_file_load=320 bpf=321
        userfaultfd=323 semget=64 msgget=68 mq_open=240 fadvise64=221
        """
        + _COMMON
    ),
    "aarch64": _numbers(
        """
        ptrace=117 syslog=116 personality=92 vhangup=58 pivot_root=41 adjtimex=171 chroot=51 acct=89
        settimeofday=170 mount=40 umount2=39 swapon=224 swapoff=225 reboot=142 sethostname=161 setdomainname=162
        init_module=105 delete_module=106 quotactl=60 lookup_dcookie=18 clock_settime=112 kexec_load=104
        add_key=217 request_key=218 keyctl=219 unshare=97 perf_event_open=241 fanotify_init=262
        open_by_handle_at=265 clock_adjtime=266 setns=268 process_vm_readv=270 process_vm_writev=271 kcmp=272
        finit_module=273 kexec_file_load=294 bpf=280 userfaultfd=282
        semget=190 msgget=186 mq_open=180 fadvise64=223
        """
        + _COMMON
    ),
}
"""Numbers of the denied calls by architecture."""
_MEMORY_FILES = {
    "x86_64": {"memfd_create": 319, "shmget": 29, "mincore": 27},
    "aarch64": {"memfd_create": 279, "shmget": 194, "mincore": 232},
}
"""Calls that make memory that belongs to no process and that no limit counts, and one that reports pages in memory.
Drivers of GPUs may need them."""
_WITHOUT_WAITING = {"x86_64": {"preadv2": 327, "pwritev2": 328}, "aarch64": {"preadv2": 286, "pwritev2": 287}}
"""Calls that can read only the pages that are in memory. The C library uses the older calls instead."""
_MMAP, _FLAGS_AT = {"x86_64": 9, "aarch64": 222}, 40
_SHARED, _ANONYMOUS = 0x01, 0x20
"""Flags of `mmap` that together make memory of no process as well: its pages stay when a process gives them back."""

_STARTING = {"x86_64": {"fork": 57, "vfork": 58}, "aarch64": {}}
"""Calls that start a process, in addition to `clone`. The CPU time of a process that ends within a timed call would not
be counted."""
_THREAD = 0x00010000
"""The flag of `clone` that makes a thread and no process."""

_ARCHITECTURES = {
    # Identity of the architecture, and numbers of seccomp, clone and socket.
    "x86_64": (0xC000003E, 317, 56, 41),
    "aarch64": (0xC00000B7, 277, 220, 198),
}
_CLONE3 = 435


def program(
    machine: str, *, memory_files: bool = True, processes: bool = True, local_sockets: bool = False
) -> list[tuple[int, int, int, int]]:
    """The filter for an architecture: instructions of classic BPF (code, jump if true, jump if false, operand).

    Args:
        machine: name of the architecture, as in `os.uname`.
        memory_files: whether anonymous files and shared memory (System V, mapped) are allowed.
        processes: whether the process may start others. It may start threads in any case.
        local_sockets: whether it may make local sockets, with which it reaches services. Pairs of sockets, which reach
            no other process, are allowed in any case.

    Raises:
        KeyError: the architecture is unknown.
    """
    identity, _, clone, socket = _ARCHITECTURES[machine]
    eperm, enosys = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    allow = (_RETURN, 0, 0, _ALLOW)
    made = [
        *((_LOAD, 0, 0, _ARCHITECTURE_AT), (_EQUAL, 1, 0, identity), (_RETURN, 0, 0, _KILL_PROCESS)),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]
    if machine == "x86_64":
        made += [(_AT_LEAST, 0, 1, _X32_BIT), enosys]
    denied = {**DENIED[machine], **({} if memory_files else _MEMORY_FILES[machine])}
    denied |= {} if processes else _STARTING[machine]
    for number in sorted(denied.values()):
        made += [(_EQUAL, 0, 1, number), eperm]
    for number in sorted(_WITHOUT_WAITING[machine].values()):
        made += [(_EQUAL, 0, 1, number), enosys]
    # The flags of `clone3` are in memory, which a filter cannot read. The C library uses `clone` instead.
    made += [(_EQUAL, 0, 1, _CLONE3), enosys]
    threads = [] if processes else [(_ANY_BIT, 1, 0, _THREAD), eperm]
    made += [
        (_EQUAL, 0, 4 + len(threads), clone),
        (_LOAD, 0, 0, _ARGUMENT_AT),
        (_ANY_BIT, 0, 1, _NAMESPACE_FLAGS),
        eperm,
    ]
    made += [*threads, allow]
    if local_sockets:
        made += [(_EQUAL, 0, 4, socket), (_LOAD, 0, 0, _ARGUMENT_AT), (_EQUAL, 1, 0, _AF_UNIX), eperm, allow]
    else:
        made += [(_EQUAL, 0, 1, socket), eperm]
    if not memory_files:
        made += [(_EQUAL, 0, 4, _MMAP[machine]), (_LOAD, 0, 0, _FLAGS_AT), (_ANY_BIT, 0, 2, _ANONYMOUS)]
        made += [(_ANY_BIT, 0, 1, _SHARED), eperm]
    return [*made, allow]


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install(*, memory_files: bool = True, processes: bool = True, local_sockets: bool = False) -> bool:
    """Apply the filter to all threads of this process and to all processes that it starts; returns whether that was
    possible.

    It requires that the process can gain no new privileges (`privileges.drop_capabilities`).

    Args:
        memory_files: see `program`.
        processes: see `program`.
        local_sockets: see `program`.
    """
    machine = os.uname().machine
    # A 32-bit interpreter makes calls by other numbers.
    if machine not in _ARCHITECTURES or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    instructions = program(machine, memory_files=memory_files, processes=processes, local_sockets=local_sockets)
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in instructions)
    return bool(
        _libc.syscall(
            _ARCHITECTURES[machine][1],
            _SET_MODE_FILTER,
            _ALL_THREADS | _KEEP_SPEED,
            ctypes.byref(_Program(len(instructions), packed)),
        )
        == 0
    )

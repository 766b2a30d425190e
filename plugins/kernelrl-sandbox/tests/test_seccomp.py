"""The filter of system calls, executed by an interpreter of its instructions, also for other architectures."""

from __future__ import annotations

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_sandbox import seccomp

ALLOW, KILL = 0x7FFF0000, 0x80000000
EPERM, ENOSYS = 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
IDENTITY = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
CLONE = {"x86_64": 56, "aarch64": 220}
SOCKET = {"x86_64": 41, "aarch64": 198}
UNKNOWN = {"x86_64": (327, 328), "aarch64": (286, 287)}
"""Reading and writing with flags."""
MACHINES = sorted(IDENTITY)


def result(
    machine: str,
    number: int,
    argument: int = 0,
    identity: int | None = None,
    *,
    fourth: int = 0,
    memory_files: bool = True,
    processes: bool = True,
    local_sockets: bool = False,
) -> int:
    """The decision of the kernel about a call with its first and fourth argument."""
    identity = IDENTITY[machine] if identity is None else identity
    data = struct.pack("<IIQ6Q", number, identity, 0, argument, 0, 0, fourth, 0, 0)
    program = seccomp.program(machine, memory_files=memory_files, processes=processes, local_sockets=local_sockets)
    place, loaded = 0, 0
    while True:
        code, if_true, if_false, operand = program[place]
        place += 1
        if code == 0x20:
            loaded = struct.unpack_from("<I", data, operand)[0]
        elif code == 0x06:
            return operand
        else:
            held = {0x15: loaded == operand, 0x35: loaded >= operand, 0x45: bool(loaded & operand)}[code]
            place += if_true if held else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_each_denied_call_is_denied(machine: str) -> None:
    assert {result(machine, number) for number in seccomp.DENIED[machine].values()} == {EPERM}


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 319), ("x86_64", 29), ("aarch64", 279), ("aarch64", 194)])
def test_memory_of_no_process_is_for_drivers_of_gpus_alone(machine: str, number: int) -> None:
    assert [result(machine, number, memory_files=allowed) for allowed in (True, False)] == [ALLOW, EPERM]


@pytest.mark.parametrize("machine", MACHINES)
def test_where_no_processes_may_be_started_threads_may(machine: str) -> None:
    share, thread, user_namespace = 0x00000F00, 0x00010000, 0x10000000
    flag_sets = (0, share, share | thread, thread | user_namespace)
    assert [result(machine, CLONE[machine], flags, processes=False) for flags in flag_sets] == [
        EPERM,
        EPERM,
        ALLOW,
        EPERM,
    ]
    assert [result(machine, CLONE[machine], flags) for flags in flag_sets] == [ALLOW, ALLOW, ALLOW, EPERM]
    forks = (57, 58) if machine == "x86_64" else ()
    assert [result(machine, number, processes=False) for number in forks] == [EPERM for _ in forks]


@pytest.mark.parametrize(("machine", "number"), [("x86_64", 9), ("aarch64", 222)])
def test_memory_that_is_mapped_is_private_or_of_a_file(machine: str, number: int) -> None:
    shared, shared_and_valid, private, anonymous = 0x01, 0x03, 0x02, 0x20
    for kind in (shared, shared_and_valid):
        flags = kind | anonymous
        assert [result(machine, number, fourth=flags, memory_files=allowed) for allowed in (True, False)] == [
            ALLOW,
            EPERM,
        ]
    for flags in (private, private | anonymous, shared, shared_and_valid, private | anonymous | 0x4000):
        assert result(machine, number, fourth=flags, memory_files=False) == ALLOW


@pytest.mark.parametrize(("machine", "mincore"), [("x86_64", 27), ("aarch64", 232)])
def test_no_call_reports_which_pages_of_files_are_in_memory(machine: str, mincore: int) -> None:
    assert seccomp.DENIED[machine].keys() >= {"fadvise64", "cachestat"}
    assert [result(machine, mincore, memory_files=allowed) for allowed in (True, False)] == [ALLOW, EPERM]
    assert [result(machine, number) for number in UNKNOWN[machine]] == [ENOSYS, ENOSYS]


@pytest.mark.parametrize("machine", MACHINES)
def test_nothing_is_kept_by_the_system_itself(machine: str) -> None:
    assert seccomp.DENIED[machine].keys() >= {"semget", "msgget", "mq_open"}


@pytest.mark.parametrize("machine", MACHINES)
@given(number=st.integers(0, 0x3FFFFFFF))
def test_a_call_that_is_not_listed_is_allowed(machine: str, number: int) -> None:
    listed = {*seccomp.DENIED[machine].values(), CLONE[machine], SOCKET[machine], 435, *UNKNOWN[machine]}
    assert number in listed or result(machine, number) == ALLOW


@pytest.mark.parametrize("machine", MACHINES)
@given(identity=st.integers(0, 2**32 - 1), number=st.integers(0, 2**32 - 1))
def test_another_architecture_ends_the_process(machine: str, identity: int, number: int) -> None:
    assert identity == IDENTITY[machine] or result(machine, number, identity=identity) == KILL


@given(number=st.integers(0x40000000, 2**32 - 1))
def test_calls_of_x32_do_not_exist(number: int) -> None:
    assert result("x86_64", number) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_processes_and_threads_start_but_no_namespace_does(machine: str) -> None:
    thread, process = 0x3D0F00, 0x1200011
    assert [result(machine, CLONE[machine], flags) for flags in (thread, process)] == [ALLOW, ALLOW]
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert result(machine, CLONE[machine], process | namespace) == EPERM
    assert result(machine, 435) == ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_no_socket_is_made(machine: str) -> None:
    assert {result(machine, SOCKET[machine], family) for family in range(46)} == {EPERM}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_driver_that_needs_a_service_makes_local_sockets_alone(machine: str) -> None:
    families = (1, 2, 10, 16, 17)
    results = [result(machine, SOCKET[machine], family, local_sockets=True) for family in families]
    assert results == [ALLOW, *[EPERM] * 4]


@pytest.mark.parametrize(("machine", "socketpair"), [("x86_64", 53), ("aarch64", 199)])
def test_a_process_makes_pairs_of_sockets(machine: str, socketpair: int) -> None:
    assert result(machine, socketpair, 1) == ALLOW

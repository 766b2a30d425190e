"""Each isolation layer by the actions that it denies to a candidate, tried from inside a real runner."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from shared_evaluations import KERNEL, Evaluations, kernel_with

from kernelrl_core.api.evaluators import Outcome
from kernelrl_testing.waiting import DEADLINE_S

PROLOGUE = """\
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    ctypes.set_errno(0)
    done = getattr(libc, name)(*arguments)
    return errno.errorcode[ctypes.get_errno()] if done == -1 else "done"
def attempt(work):
    try:
        work()
    except BaseException as error:
        return type(error).__name__
    return "done"
"""


@pytest.fixture
def inside(evaluations: Evaluations) -> Callable[..., Any]:
    """Returns the value of an expression in a runner, after some lines; skips if a layer is missing that it needs."""

    def value_inside(lines: str, expression: str, *needs: str) -> Any:
        source = f"{PROLOGUE}{lines}\nraise RuntimeError('<<' + json.dumps({expression}) + '>>')"
        evaluation = evaluations.evaluate(kernel_with(source))
        lacking = {*needs, "user_namespace"} & set(evaluation.isolation.missing) if needs else set()
        if lacking:
            pytest.skip(f"this machine does not allow {', '.join(sorted(lacking))}")
        assert "<<" in evaluation.detail, evaluation.detail
        return json.loads(evaluation.detail.rpartition("<<")[2].partition(">>")[0])

    return value_inside


@pytest.mark.parametrize(
    ("action", "error"),
    [
        ("call('ptrace', 16, 1, 0, 0)", "EPERM"),
        ("call('process_vm_readv', 1, None, 0, None, 0, 0)", "EPERM"),
        ("call('unshare', 0x10000000)", "EPERM"),
        ("call('setns', 0, 0)", "EPERM"),
        ("call('mount', b'none', b'/tmp', b'tmpfs', 0, None)", "EPERM"),
        ("call('umount2', b'/proc', 2)", "EPERM"),
        ("call('chroot', b'/tmp')", "EPERM"),
        ("call('personality', 0x0040000)", "EPERM"),
        ("call('adjtimex', bytes(256))", "EPERM"),
        ("call('syscall', 425, 8, bytes(256))", "EPERM"),
        ("call('syscall', 438, 0, 0, 0)", "EPERM"),
        ("call('syscall', 435, bytes(88), 88)", "ENOSYS"),
        ("call('socket', 2, 1, 0)", "EPERM"),
        ("call('socket', 10, 2, 0)", "EPERM"),
        ("call('socket', 16, 3, 0)", "EPERM"),
        ("call('socket', 1, 1, 0)", "EPERM"),
    ],
)
def test_the_filter_denies_calls_by_name(inside: Callable[..., Any], action: str, error: str) -> None:
    assert inside("", action, "seccomp") == error


def test_the_process_that_started_the_runner_is_out_of_reach(inside: Callable[..., Any]) -> None:
    me = os.getpid()
    errors = inside("", f"[call('kill', {me}, 0), attempt(lambda: open('/proc/{me}/mem', 'rb'))]", "pid_namespace")
    assert errors == ["ESRCH", "FileNotFoundError"]


def test_no_process_outside_has_a_process_id_inside(inside: Callable[..., Any]) -> None:
    others = [process.pid for process in psutil.process_iter() if process.pid > 300]
    found = inside(f"others = {others}", "[pid for pid in others if call('kill', pid, 0) == 'done']", "pid_namespace")
    assert found == []


def test_the_only_network_interface_is_loopback(inside: Callable[..., Any]) -> None:
    lines = "rows = open('/proc/net/dev').read().splitlines()[2:]"
    assert inside(lines, "[row.split(':')[0].strip() for row in rows]", "network_namespace") == ["lo"]


def test_a_runner_has_no_capability_in_its_namespaces(inside: Callable[..., Any]) -> None:
    lines = "facts = dict(line.split(':', 1) for line in open('/proc/self/status'))"
    found = inside(
        lines, "[facts[name].strip() for name in ('CapPrm', 'CapEff', 'CapInh', 'NoNewPrivs')]", "capabilities"
    )
    assert found == ["0" * 16] * 3 + ["1"]


def test_only_harmless_devices_exist(inside: Callable[..., Any]) -> None:
    names = inside("", "sorted(os.listdir('/dev'))", "device_nodes")
    assert set(names) <= {"null", "zero", "full", "random", "urandom", "shm", "fd", "stdin", "stdout", "stderr"}
    assert inside("", "[attempt(lambda: open('/dev/null', 'w').write('x')), len(os.urandom(4))]") == ["done", 4]


def test_files_of_users_do_not_exist(inside: Callable[..., Any], tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("private")
    homes = {str(Path.home()), "/root"}
    lines = f"""\
found = []
for name in ('.ssh', '.netrc', '.bashrc', '.profile', '.gitconfig', '.config', '.cache'):
    found += [f'{{home}}/{{name}}' for home in {homes} if os.path.exists(f'{{home}}/{{name}}')]"""
    assert inside(lines, f"[found, os.path.exists({str(secret)!r})]", "mount_namespace") == [[], False]


def test_a_socket_of_a_service_does_not_exist(inside: Callable[..., Any], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "service"))
        service.listen()
        found = inside("", f"os.path.exists({str(tmp_path / 'service')!r})", "mount_namespace")
    assert found is False


def test_only_scratch_and_shared_memory_can_be_written(inside: Callable[..., Any]) -> None:
    lines = """\
def writes(folder):
    return attempt(lambda: open(f'{folder}/kernelrl_probe', 'w'))
places = [os.environ['HOME'], '/dev/shm', '/', '/tmp', '/dev', '/etc', '/usr', '/var/tmp', '/root', '/home', '/proc']"""
    found = inside(lines, "[writes(place) for place in places]", "mount_namespace")
    assert found[:2] == ["done", "done"]
    assert "done" not in found[2:]


def test_a_candidate_is_not_executed_as_root(inside: Callable[..., Any]) -> None:
    if os.getuid() != 0:
        pytest.skip("only root has an identity to drop")
    assert inside("", "attempt(lambda: open('/etc/shadow'))", "dropped_uid") in ("PermissionError", "FileNotFoundError")


def test_the_only_descriptors_are_those_of_the_protocol(inside: Callable[..., Any]) -> None:
    lines = """\
links = []
for name in os.listdir('/proc/self/fd'):
    try:
        links.append(os.readlink(f'/proc/self/fd/{name}').split(':')[0])
    except OSError:
        pass"""
    kinds = inside(lines, "sorted(links)")
    allowed = ("/dev/null", "pipe", "socket", "/memfd", "/proc/")
    # Torch keeps the list of its operators open.
    assert [kind for kind in kinds if not kind.startswith(allowed) and not kind.endswith("/trace.json")] == []
    assert kinds.count("socket") == 1


def test_the_memory_of_all_processes_of_a_candidate_is_limited_together(evaluations: Evaluations) -> None:
    lines = """\
import os, time
for _ in range(8):
    if os.fork() == 0:
        kept = bytearray(b'x') * (300 << 20)
        time.sleep(1000)
time.sleep(1000)"""
    evaluation = evaluations.evaluate(kernel_with(lines), memory_mib=1024, timeout_s=DEADLINE_S)
    if {"pid_namespace", "mount_namespace"} & set(evaluation.isolation.missing):
        pytest.skip("this machine does not allow to see the candidate's processes together")
    assert evaluation.outcome is Outcome.OUT_OF_MEMORY
    assert "together" in evaluation.message


def test_an_evaluation_has_the_fixed_names_of_missing_layers(evaluations: Evaluations) -> None:
    isolation = evaluations.evaluate(KERNEL).isolation
    layers = {
        *("limits", "user_namespace", "pid_namespace", "mount_namespace", "network_namespace", "capabilities"),
        *("seccomp", "dropped_uid", "device_nodes"),
    }
    assert set(isolation.missing) <= layers
    assert isolation.level == 4 or isolation.missing

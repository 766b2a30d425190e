"""The sandbox of a process that starts sandboxes itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from kernelrl_testing.waiting import wait_until

PROGRAM = """
import ctypes, json, os, socket, sys, time
from kernelrl_sandbox import sandbox, seclusion

def failure(action):
    try:
        action()
    except OSError as error:
        return error.strerror
    return ""

missing = seclusion.seclude((), on_gpu=False)
found = dict(missing=missing)
{body}
print(json.dumps(found))
"""
WITHOUT_NAMESPACES = """
from kernelrl_sandbox import namespaces, privileges, seclusion
import json
libc = namespaces._libc
class Refusing:
    def __getattr__(self, name):
        return (lambda *_: -1) if name == "unshare" else getattr(libc, name)
namespaces._libc = Refusing()
missing = seclusion.seclude((), on_gpu=False)
print(json.dumps(missing))
"""
INNER = """
scratch = seclusion.SCRATCH + "/inner"
os.mkdir(scratch)
output, sent = os.pipe()
status, report = os.pipe()
supervisor = os.fork()
if supervisor == 0:
    inside = sandbox.enter(memory_mib=64, on_gpu=False, cpu_s=20, scratch=scratch, keep={{sent}}, status=report)
    os.write(sent, json.dumps([inside, failure(lambda: open("/tmp/file", "w")), os.listdir(scratch)]).encode())
    os._exit(0)
os.waitpid(supervisor, 0)
found["inner"] = json.loads(os.read(output, 4096))
found["how"] = os.read(status, 64).decode()
"""


def secluded(body: str, **values: str) -> dict[str, Any]:
    """What a secluded process found."""
    program = PROGRAM.format(body=body.format(**values))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_all_layers_hold_and_a_runner_inside_has_all_of_its_own() -> None:
    found = secluded(INNER)
    assert found == {"missing": [], "inner": [[], "Read-only file system", []], "how": "exit 0"}


def test_files_and_processes_outside_do_not_exist_and_nothing_outside_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    body = """
found["file"] = failure(lambda: open({file!r}))
found["program"] = failure(lambda: open("/usr/bin/of_a_test", "w"))
found["setting"] = failure(lambda: open("/proc/sys/kernel/core_pattern", "w"))
found["processes"] = sum(name.isdigit() for name in os.listdir("/proc"))
found["scratch"] = failure(lambda: open(seclusion.SCRATCH + "/file", "w"))
"""
    found = secluded(body, file=str(tmp_path / "file"))
    assert found == {
        "missing": [],
        "file": "No such file or directory",
        "program": "Read-only file system",
        "setting": "Permission denied",
        "processes": 2,
        "scratch": "",
    }


def test_afterwards_the_process_makes_no_sockets_and_no_namespaces() -> None:
    body = """
found["filter"] = seclusion.give_up_namespaces(1 << 30, on_gpu=False)
found["socket"] = failure(socket.socket)
found["namespace"] = ctypes.CDLL(None).unshare(0x10000000)
"""
    found = secluded(body)
    assert found == {"missing": [], "filter": [], "socket": "Operation not permitted", "namespace": -1}


def test_the_status_of_the_process_is_that_of_its_caller() -> None:
    program = PROGRAM.format(body="os._exit(7)")
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 7


def test_everything_inside_ends_when_the_caller_is_killed() -> None:
    mark = f"secluded-by-test-{os.getpid()}"
    program = PROGRAM.format(body="print('inside', flush=True)\ntime.sleep(1000)")
    command = [sys.executable, "-c", program, mark]

    def is_left() -> bool:
        return any(mark in (found.info["cmdline"] or ()) for found in psutil.process_iter(["cmdline"]))

    caller = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert caller.stdout is not None
    caller.stdout.readline()
    caller.kill()
    caller.wait()
    wait_until(lambda: not is_left(), what="the end of the processes inside")
    caller.stdout.close()


def test_layers_that_the_machine_does_not_permit_are_named() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NAMESPACES], capture_output=True, text=True, timeout=60)
    assert {*json.loads(done.stdout)} >= {"user_namespace", "pid_namespace", "mount_namespace", "network_namespace"}

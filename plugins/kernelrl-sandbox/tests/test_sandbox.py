"""Permissions of a process in the sandbox, and the end of its processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from kernelrl_testing.waiting import DEADLINE_S

PROGRAM = """
import json, os, signal, sys, time
from kernelrl_sandbox import sandbox

class WithoutNamespaces:
    def __getattr__(self, name):
        return (lambda *_: -1) if name == "unshare" else getattr(library, name)

from kernelrl_sandbox import namespaces
library = namespaces._libc
if {bare}:
    namespaces._libc = WithoutNamespaces()
report, output = os.pipe()
status_out, status = os.pipe()
supervisor = os.fork()
if supervisor == 0:
    missing = sandbox.enter(
        memory_mib=64, on_gpu={on_gpu}, cpu_s=20, scratch={scratch!r}, keep={{output}}, status=status
    )
    def say(value):
        os.write(output, json.dumps(value).encode())
{body}
    os._exit(0)
os.close(output)
os.close(status)
if {end}:
    assert os.read(report, 4096) == b'"up"'
    os.kill(supervisor, signal.SIGTERM)
os.waitpid(supervisor, 0)
print(json.dumps([os.read(report, 4096).decode(), os.read(status_out, 64).decode()]))
"""


def sandboxed(body: str, scratch: Path, *, bare: bool = False, on_gpu: bool = False, end: bool = False) -> list[str]:
    """The output of a process in the sandbox, and how it ended.

    Args:
        bare: without namespaces.
        end: end it after it has said "up".
    """
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    script = PROGRAM.format(body=indented, scratch=str(scratch), bare=bare, on_gpu=on_gpu, end=end)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stderr
    output: list[str] = json.loads(done.stdout)
    return output


DAEMONS = """
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(1000)
        os._exit(0)
sys.argv[:] = []
"""


def sleeping_below(directory: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if str(directory) in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("end", [False, True])
def test_nothing_is_left_of_a_process_when_its_supervisor_ends(tmp_path: Path, bare: bool, end: bool) -> None:
    body = DAEMONS + ('say("up")\ntime.sleep(1000)\n' if end else "")
    _, how = sandboxed(body, tmp_path, bare=bare, end=end)
    assert how == ("signal 9" if end else "exit 0")
    # The forks have the arguments of their parent, and those name the directory.
    assert sleeping_below(tmp_path) == []


@pytest.mark.parametrize("place", ["outside", "/dev/shm"])
def test_files_are_written_nowhere_but_in_the_private_directory(tmp_path: Path, place: str) -> None:
    scratch, outside = tmp_path / "scratch", tmp_path / "outside"
    scratch.mkdir()
    outside.mkdir()
    where = outside if place == "outside" else Path(place)
    body = f"""
if "mount_namespace" in missing:
    say("missing")
    os._exit(0)
open({str(scratch / "mine")!r}, "w").write("x")
try:
    open({str(where / f"left_by_{os.getpid()}")!r}, "w").write("x")
except OSError:
    pass
say("written")
"""
    output, _ = sandboxed(body, scratch)
    if output == '"missing"':
        pytest.skip("this machine does not allow mount namespaces")
    assert list(scratch.iterdir()) == []
    assert not (where / f"left_by_{os.getpid()}").exists()


def test_files_without_a_byte_are_limited(tmp_path: Path) -> None:
    body = """
made = 0
try:
    while made < 20_000:
        os.mknod(f"/dev/shm/{made}")
        made += 1
except OSError:
    pass
say("missing" if "mount_namespace" in missing else made)
"""
    output, _ = sandboxed(body, tmp_path)
    if output == '"missing"':
        pytest.skip("this machine does not allow mount namespaces")
    assert 4_000 < int(output) < 10_000


def test_timers_of_the_kernel_are_limited(tmp_path: Path) -> None:
    body = """
import ctypes
library_of_c, place, made = ctypes.CDLL(None), ctypes.c_void_p(), 0
while made < 200 and library_of_c.timer_create(1, None, ctypes.byref(place)) == 0:
    made += 1
say("missing" if "limits" in missing else made)
"""
    output, _ = sandboxed(body, tmp_path)
    assert int(output) <= 64


def test_memory_is_limited_where_address_space_cannot_be(tmp_path: Path) -> None:
    body = """
import mmap
# Reserved and not writable, as a driver does it.
mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
try:
    bytearray(4 << 30)
    say("taken")
except MemoryError:
    say("refused")
"""
    output, _ = sandboxed(body, tmp_path, on_gpu=True)
    assert output == '"refused"'


_SHARES = """
import mmap
say("started")
for _ in range(4):
    if os.fork() == 0:
        held = mmap.mmap(-1, {size} << 20)
        for place in range(0, {size} << 20, 4096):
            held[place] = 1
        time.sleep(1000)
        os._exit(0)
os.wait()
"""


@pytest.mark.parametrize("bare", [False, True])
def test_memory_that_processes_share_counts(tmp_path: Path, bare: bool) -> None:
    # 4 * 700 MiB are more than 64 MiB and the memory that a GPU's driver may have.
    _, how = sandboxed(_SHARES.format(size=700), tmp_path, bare=bare, on_gpu=True)
    assert how == "memory"


def test_shared_memory_of_no_process_is_refused_on_the_cpu(tmp_path: Path) -> None:
    body = """
import mmap
try:
    mmap.mmap(-1, 4096)
    say(missing)
except PermissionError:
    say("refused")
"""
    output, _ = sandboxed(body, tmp_path)
    assert output == '"refused"' or "seccomp" in output


def test_too_many_processes_are_ended(tmp_path: Path) -> None:
    body = """
started = 0
while started < 80 and not {"pid_namespace", "mount_namespace"} & set(missing):
    try:
        if os.fork() == 0:
            time.sleep(1000)
        started += 1
    except OSError:
        break
say(started)
time.sleep(1000 if started == 80 else 0)
"""
    output, how = sandboxed(body, tmp_path)
    # Others than root cannot start as many.
    assert how == "crowd" or int(output) < 80


def value_of(expression: str) -> str:
    """A line that reports the value of an expression, or that there is no namespace of mounts."""
    return f'say("missing" if "mount_namespace" in missing else {expression})'


def test_the_cache_and_modules_that_are_not_loaded_are_hidden(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path_factory.mktemp("project")
    for package in ("kernelrl_hidden", "kernelrl_loaded", "loaded", "others"):
        (project / package).mkdir()
        (project / package / "__init__.py").write_text("SOLUTION = 42")
    (project / "loaded" / "samples.jsonl").touch()
    (project / "single.py").touch()
    (project / "cache").mkdir()
    (project / "cache" / "lock").touch()
    monkeypatch.setenv("PYTHONPATH", str(project), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(project / "cache"))
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", "import kernelrl_loaded, loaded, single\n" + PROGRAM)
    output, ended = sandboxed(value_of(f"sorted(os.listdir({str(project)!r}))"), tmp_path)
    if output == '"missing"':
        pytest.skip("this machine has no namespaces of mounts")
    assert (json.loads(output), ended) == (["kernelrl_loaded", "loaded", "single.py"], "exit 0")


def test_packages_of_the_project_that_are_not_loaded_are_empty(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path_factory.mktemp("environment") / "site-packages"
    for package in ("kernelrl_hidden", "others"):
        (packages / package).mkdir(parents=True)
        (packages / package / "__init__.py").write_text("SOLUTION = 42")
    monkeypatch.setenv("PYTHONPATH", str(packages), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    listed = f"[os.listdir(os.path.join({str(packages)!r}, name)) for name in ('kernelrl_hidden', 'others')]"
    output, _ = sandboxed(value_of(listed), tmp_path)
    if output == '"missing"':
        pytest.skip("this machine has no namespaces of mounts")
    assert json.loads(output) == [[], ["__init__.py"]]


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_process_sees_the_paths_of_the_list_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, on_gpu: bool
) -> None:
    # The working directory of the process that starts a run has the journals of other runs.
    directory = tmp_path_factory.mktemp("run")
    (directory / "samples.jsonl").write_text("SOLUTION = 42")
    monkeypatch.chdir(directory)
    body = f"""
from kernelrl_sandbox import visible
around = sandbox.prepare(on_gpu={on_gpu})
allowed = [*around.shown, {str(tmp_path)!r}, "/proc", "/dev"]
found = []
for place, directories, files in os.walk("/"):
    directories[:] = [name for name in directories if os.path.join(place, name) not in allowed]
    found += [path for path in (os.path.join(place, name) for name in files) if path not in allowed]
say("missing" if "mount_namespace" in missing else [found, os.path.exists({str(directory)!r})])
"""
    output, _ = sandboxed(body, tmp_path, on_gpu=on_gpu)
    if output == '"missing"':
        pytest.skip("this machine has no namespaces of mounts")
    assert json.loads(output) == [[], False]


def test_without_namespaces_the_missing_layers_are_named(tmp_path: Path) -> None:
    output, _ = sandboxed("say(missing)", tmp_path, bare=True)
    assert {"mount_namespace", "network_namespace", "device_nodes"} <= {*json.loads(output)}

"""Confined judges: hostile tasks have no effect or fail as tasks, and honest tasks are evaluated as before."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from shared_evaluations import KERNEL, REFERENCE, USERS_KEY, Evaluations

from kernelrl_core.api.errors import UsageError
from kernelrl_core.api.evaluators import Evaluation, Outcome
from kernelrl_testing.waiting import require_times, wait_until

CPP_KERNEL = '''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <torch/extension.h>
torch::Tensor twice_relu(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const float* from = x.data_ptr<float>();
    float* to = y.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] > 0 ? 2 * from[i] : 0;
    return y;
}
"""
extension = load_inline("twice", cpp_sources=[SOURCE], functions=["twice_relu"])


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return extension.twice_relu(x)
'''


@pytest.fixture(scope="module")
def foreign() -> Iterator[Evaluations]:
    """Judges that are started in an environment with a secret of the user."""
    with pytest.MonkeyPatch.context() as patch, Evaluations() as own:
        patch.setenv("SERVICE_API_KEY", USERS_KEY)
        yield own


def reference_that(lines: str) -> str:
    """`REFERENCE` that executes lines of code when its module is imported."""
    return f"import builtins, os, socket, sys, time\n\n{textwrap.dedent(lines)}\n\n{REFERENCE}"


def evaluate(foreign: Evaluations, lines: str, domain: str = "a", **fields: Any) -> Evaluation:
    """The evaluation of a correct kernel for a task of a domain."""
    return foreign.evaluate(KERNEL, reference_that(lines), domain=domain, **fields)


def error_of(foreign: Evaluations, lines: str, domain: str = "a") -> str:
    """The error of a task of a domain."""
    with pytest.raises(UsageError) as caught:
        evaluate(foreign, lines, domain)
    return str(caught.value)


def test_an_honest_task_is_evaluated_as_by_an_unconfined_judge(foreign: Evaluations) -> None:
    wrong = KERNEL.replace("* 2.0, mask", "* 3.0, mask")
    for source, outcome in ((KERNEL, Outcome.CORRECT), (wrong, Outcome.INCORRECT)):
        confined, plain = (foreign.evaluate(source, domain=domain) for domain in ("a", ""))
        assert confined.outcome is plain.outcome is outcome
        assert confined.mismatch == plain.mismatch
        assert confined.isolation == plain.isolation


@pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")
def test_a_timed_extension_is_built_and_evaluated(foreign: Evaluations) -> None:
    found = foreign.evaluate(CPP_KERNEL, backend="cpp", timing=True, domain="a")
    assert found.outcome is Outcome.CORRECT, found
    require_times(found)


def test_a_task_reaches_no_network(foreign: Evaluations) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        message = error_of(foreign, f"socket.create_connection(('127.0.0.1', {port}), timeout=5)")
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert "PermissionError" in message


def test_a_task_reads_no_file_of_the_service(foreign: Evaluations, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret")
    assert "FileNotFoundError" in error_of(foreign, f"open({str(tokens)!r})")


def test_a_task_sees_no_variable_of_the_user(foreign: Evaluations) -> None:
    lines = f"""
    seen = repr(dict(os.environ)).encode()
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            seen += open(f"/proc/{{process}}/environ", "rb").read()
        except OSError:
            pass
    assert b"PATH" in seen
    if {USERS_KEY.encode()!r} in seen:
        raise RuntimeError("found")
    """
    assert evaluate(foreign, lines).outcome is Outcome.CORRECT


def test_a_task_changes_no_file(foreign: Evaluations, tmp_path: Path) -> None:
    package = Path(sys.modules["kernelrl_core"].__file__ or "").parent
    places = [tmp_path, package, Path("/usr"), Path("/tmp"), Path.home(), Path("/dev/shm"), Path.cwd()]
    lines = f"""
    for place in {[str(place) for place in places]!r}:
        try:
            open(place + "/of_a_task", "w")
        except OSError:
            pass
    """
    assert evaluate(foreign, lines).outcome is Outcome.CORRECT
    assert not [place for place in places if (place / "of_a_task").exists()]


def test_a_task_ends_no_process_but_its_own(foreign: Evaluations) -> None:
    lines = f"""
    import signal
    for process in (1, os.getppid(), {os.getpid()}):
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            pass
    """
    assert evaluate(foreign, lines).outcome is Outcome.CORRECT


def test_a_task_that_ends_the_processes_beside_it_changes_only_its_own_evaluation(foreign: Evaluations) -> None:
    assert evaluate(foreign, "os.kill(-1, 9)").outcome is Outcome.RUNTIME_ERROR
    assert evaluate(foreign, "").outcome is Outcome.CORRECT


def test_a_task_that_ends_its_judge_is_an_error_of_the_task(foreign: Evaluations) -> None:
    assert "it printed last: the end" in error_of(foreign, "os.write(2, b'the end\\n'); os._exit(3)")


def test_a_task_that_writes_to_the_descriptors_of_its_judge_is_an_error_of_the_task(foreign: Evaluations) -> None:
    lines = """
    for descriptor in range(3, 64):
        try:
            os.set_blocking(descriptor, False)
            os.write(descriptor, b"[" * 4000)
        except OSError:
            pass
    time.sleep(1)
    os._exit(3)
    """
    assert "without any kernel" in error_of(foreign, lines)


def test_a_process_that_a_task_leaves_ends_with_its_judge() -> None:
    mark = f"left-by-a-task-{os.getpid()}"

    def is_left() -> bool:
        return any(mark in " ".join(found.info["cmdline"] or ()) for found in psutil.process_iter(["cmdline"]))

    lines = f"""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(1000)", {mark!r}])
        os._exit(0)
    """
    with Evaluations() as own:
        assert evaluate(own, lines).outcome is Outcome.CORRECT
        assert is_left()
    wait_until(lambda: not is_left(), what="the end of the process")


def test_a_task_that_fills_its_disk_is_an_error_of_the_task(foreign: Evaluations) -> None:
    lines = """
    import tempfile
    with tempfile.TemporaryFile() as file:
        os.posix_fallocate(file.fileno(), 0, 1 << 40)
    """
    assert "No space left on device" in error_of(foreign, lines)


def test_nothing_of_one_domain_is_left_for_the_next(foreign: Evaluations) -> None:
    lines = """
    import gc, tempfile
    place = os.path.join(tempfile.gettempdir(), "of_a_domain")
    if hasattr(builtins, "of_a_domain") or os.path.exists(place):
        raise RuntimeError("found")
    builtins.of_a_domain = True
    open(place, "w").close()
    """
    assert evaluate(foreign, lines, "first").outcome is Outcome.CORRECT
    assert evaluate(foreign, lines, "second").outcome is Outcome.CORRECT
    # In the same domain both are found.
    assert "found" in error_of(foreign, f"{lines}\n    # another task", "second")


def test_a_lane_keeps_its_judge_for_tasks_of_one_domain(foreign: Evaluations) -> None:
    judges = foreign.pool.on_cpu._workers

    def process_ids() -> set[int]:
        return {judge._process.pid for judge in judges if judge.domain == "kept" and judge._process is not None}

    assert evaluate(foreign, "", "kept").outcome is Outcome.CORRECT
    first = process_ids()
    assert evaluate(foreign, "# another task", "kept").outcome is Outcome.CORRECT
    assert process_ids() == first
    assert len(first) == 1


WITHOUT_NAMESPACES = """\
import asyncio
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_judge.client.pool import JudgePool
from kernelrl_sandbox import privileges, seccomp
from kernelrl_testing.values import make_request

privileges.drop_capabilities()
seccomp.install(local_sockets=True)

async def main():
    pool = JudgePool(workers=1)
    for attempt in (pool.require_confinement(), pool.evaluate(make_request(domain="a"))):
        try:
            print(await attempt)
        except MissingPrerequisite as error:
            print(error)
    await pool.aclose()

asyncio.run(main())
"""


def test_a_machine_without_namespaces_refuses_tasks_of_others_and_names_the_missing_layers() -> None:
    command = [sys.executable, "-c", WITHOUT_NAMESPACES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stdout.count("isolation layers missing: ") == 2, done
    assert done.stdout.count("user namespace, pid namespace, mount namespace, network namespace") == 2

"""Processes that are stopped for a while."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelrl_sandbox import freezing
from kernelrl_sandbox.freezing import descendants, longest_wait_s, ran_s, suspended, total_s
from kernelrl_testing.waiting import DEADLINE_S, takes

# A process whose child, in a group of its own, counts as well.
_COUNTING = """
import os, sys, time
name = "parent"
if os.fork() == 0:
    os.setsid()
    name = "child"
while True:
    with open(os.path.join(sys.argv[1], name), "a") as file:
        file.write("x")
    time.sleep(0.005)
"""


class Counting:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {_COUNTING!r}, sys.argv[1]])"
        self.process = subprocess.Popen([sys.executable, "-c", program, str(folder)])

    def counts(self) -> list[int]:
        return [path.stat().st_size for path in sorted(self._folder.iterdir())]

    def continues(self) -> bool:
        """Whether both count."""
        before = self.counts()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            now = self.counts()
            if len(before) == 2 and all(new > old for new, old in zip(now, before, strict=True)):
                return True
            before = before if len(before) == 2 else now
            takes(0.02)
        return False


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    made = Counting(tmp_path)
    yield made
    for pid in descendants(made.process.pid):
        subprocess.run(["kill", "-9", str(pid)], check=False)
    made.process.wait(DEADLINE_S)


def test_all_descendants_stop_and_then_continue(counting: Counting) -> None:
    assert counting.continues()
    with suspended(counting.process.pid):
        before = counting.counts()
        takes(0.3)
        assert counting.counts() == before
    assert counting.continues()


@contextlib.contextmanager
def child_of(program: str) -> Iterator[tuple[int, int]]:
    """A process, and a child of it that is ready."""
    inner = f"import os, signal, sys, time\n{program}"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        (child,) = descendants(process.pid)
        try:
            yield process.pid, child
        finally:
            for pid in descendants(process.pid):
                os.kill(pid, signal.SIGKILL)


_WAITS = "print('ready', flush=True)\nwhile True: time.sleep(60)"


def test_many_busy_threads_stop() -> None:
    spins = "import threading\ndef spin():\n    while True: os.stat('/')\n"
    spins += "for _ in range(6): threading.Thread(target=spin, daemon=True).start()\n"
    with child_of(spins + _WAITS) as (root, child):
        threads = [Path(f"/proc/{child}/task/{thread}/stat") for thread in os.listdir(f"/proc/{child}/task")]
        for _ in range(20):
            with suspended(root):
                assert {path.read_text().rpartition(")")[2].split()[0] for path in threads} == {"T"}


def test_the_time_of_threads_that_have_ended_counts() -> None:
    burns = """
import threading
def burn():
    until = time.thread_time() + 0.2
    while time.thread_time() < until: pass
for _ in range(2):
    thread = threading.Thread(target=burn)
    thread.start()
    thread.join()
"""
    with child_of(burns + _WAITS) as (root, child), suspended(root):
        before = ran_s(root)
        takes(0.01)
        # 2 * 0.2 s, and what it took to start.
        assert before[child] > 0.4
        assert ran_s(root) == before


def test_a_process_that_is_gone_is_no_error() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(DEADLINE_S)
    with suspended(process.pid):
        assert descendants(process.pid) == []


def test_a_process_that_has_the_number_of_one_that_ended_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        listed = [[other.pid], [], [], []]
        monkeypatch.setattr(freezing, "descendants", lambda root: listed.pop(0))
        with suspended(os.getpid()):
            assert Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[0] not in "Tt"
        other.kill()


def test_threads_and_processes_that_start_within_a_window_count_from_their_start() -> None:
    # 7 was there before the window, 8 started in it, and 6 ended in it.
    before_s, after_s = {7: 1.0, 6: 3.0}, {7: 1.5, 8: 0.25}
    assert (total_s(before_s, after_s), longest_wait_s(before_s, after_s)) == (0.75, 0.5)

"""The nursery and its zygotes: they have no files of the judge, and outlive errors in a fork and of a fork."""

from __future__ import annotations

import errno
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy
import pytest

from kernelrl_judge.protocol import forks
from kernelrl_judge.runner import nursery
from kernelrl_testing.waiting import DEADLINE_S

HELD = """\
import os, select, signal, sys
from kernelrl_judge.peer.nursery import Nursery, Zygote

secret = open("secret", "w+")
nursery = Nursery()
os.environ["SERVICE_API_KEY"] = "given later"
zygote = Zygote(nursery, "kernelrl_plugin_cpp.runner:CppRunner", "cpu", {"OMP_NUM_THREADS": "1"})
assert zygote.alive
zygote._channel.recv(16)
pid = next(line.split()[1] for line in open(f"/proc/self/fdinfo/{zygote._handle}") if line.startswith("Pid:"))
for file in os.listdir(f"/proc/{pid}/fd"):
    print("file", os.readlink(f"/proc/{pid}/fd/{file}"))
print("name", open(f"/proc/{pid}/cmdline").read().strip(chr(0)))
print("threads", len(os.listdir(f"/proc/{pid}/task")))
zygote.close()
print("closed", not os.path.exists(f"/proc/{pid}") or open(f"/proc/{pid}/stat").read().split()[2] == "Z")
"""


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    handler = signal.getsignal(signal.SIGCHLD)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(DEADLINE_S)
    with ours, theirs:
        yield ours, theirs
    signal.signal(signal.SIGCHLD, handler)


def in_the_background(work: Callable[[], Any]) -> list[Any]:
    """A list that gets the result or the exception of a function, which a thread calls."""
    found: list[Any] = []

    def thread() -> None:
        try:
            found.append(work())
        except Exception as error:
            found.append(error)

    threading.Thread(target=thread, daemon=True).start()
    return found


def test_a_zygote_holds_nothing_of_its_judge(tmp_path: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELD], cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    lines = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    files = [what for kind, what in lines if kind == "file"]
    assert not any("secret" in file for file in files)
    # The standard ones, and the socket to the judge.
    assert len(files) == 4
    assert sum(file.startswith("socket:") for file in files) == 1
    assert dict(lines)["name"] == "kernelrl_judge.runner.zygote"
    assert dict(lines)["threads"] == "1"
    assert dict(lines)["closed"] == "True"


def test_a_fork_that_fails_is_reported_and_the_next_one_works(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pair
    real, calls = os.fork, []

    def fork() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return real()

    def request() -> list[Any]:
        with pytest.raises(forks.NotForked, match="Resource temporarily unavailable"):
            forks.request_fork(ours, b"first", [])
        pid, handle = forks.request_fork(ours, b"second", [])
        os.close(handle)
        ours.close()
        return [pid]

    monkeypatch.setattr(forks.os, "fork", fork)
    found = in_the_background(request)
    forks.serve(theirs, lambda request, descriptors: os._exit(0))
    assert found
    assert found[0][0] > 0


def test_an_error_in_a_fork_ends_the_fork_alone(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    def fails(request: bytes, descriptors: list[int]) -> NoReturn:
        raise OSError("no such file")

    def request() -> list[int]:
        found = []
        for _ in range(2):
            pid, handle = forks.request_fork(ours, b"request", [])
            found.append(pid)
            os.close(handle)
        ours.close()
        return found

    found = in_the_background(request)
    forks.serve(theirs, fails)
    assert len(set(found[0])) == 2


def test_a_process_that_has_ended_raises_no_reply(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(BrokenPipeError):
        forks.request_fork(ours, b"request", [])


def test_a_fork_draws_other_numbers_than_its_judge() -> None:
    def drawn() -> tuple[float, float]:
        return random.random(), float(numpy.random.random_sample())

    kept = random.getstate(), numpy.random.get_state()
    of_judge = drawn()
    random.setstate(kept[0])
    numpy.random.set_state(kept[1])
    nursery._reseed()
    of_fork = drawn()
    assert of_fork[0] != of_judge[0]
    assert of_fork[1] != of_judge[1]

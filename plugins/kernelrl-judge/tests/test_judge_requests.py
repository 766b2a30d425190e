"""Requests of a judge to its main process: builds and leases, and what a hostile judge sends."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kernelrl_build.service import BadBuildRequest, BuildReply, BuildUnavailable
from kernelrl_core.api.evaluators import DeviceLease, ExtensionBuild
from kernelrl_judge.client.builds import Builds
from kernelrl_judge.client.judge_requests import JudgeRequests
from kernelrl_judge.peer.cancellation import Cancelled, CancelWatch
from kernelrl_judge.peer.main_process import MainProcess
from kernelrl_judge.protocol import requests_to_main as channels
from kernelrl_testing.values import make_request
from kernelrl_testing.waiting import DEADLINE_S


class _Builds:
    """The builds of a machine; `serve` is what a test needs."""

    def __init__(self, serve: Callable[..., BuildReply]) -> None:
        self.serve = serve


def served(serve: Callable[..., BuildReply], judge: Callable[[socket.socket], Any]) -> Any:
    """The result of a judge's function in a thread, while the main process serves its requests."""

    async def whole() -> Any:
        requests = JudgeRequests(cast(Builds, _Builds(serve)), "")
        requests.evaluating = make_request()
        # A judge has its own descriptor of its end.
        with requests.theirs.dup() as channel:
            requests.theirs.close()
            try:
                return await asyncio.to_thread(judge, channel)
            finally:
                requests.close()

    return asyncio.run(asyncio.wait_for(whole(), 60))


def refused(*_: Any, **__: Any) -> BuildReply:
    raise AssertionError("no build was requested")


@pytest.fixture
def cancellation() -> Iterator[tuple[CancelWatch, int]]:
    """A watch, and the descriptor that cancels when it is written to."""
    watched, cancels = os.pipe()
    yield CancelWatch(watched), cancels
    os.close(watched)
    os.close(cancels)


def test_a_build_returns_its_facts_and_files(cancellation: tuple[CancelWatch, int], tmp_path: Path) -> None:
    (tmp_path / "extension.so").write_text("extension")
    made = ExtensionBuild("bound", "", True, 2.5, 3.5, {"link": 0.5})

    def serve(request: Any, requested: bytes, gpu: str, check: Any, *, disabled: bool) -> BuildReply:
        assert (requested, gpu, disabled) == (b'{"name": "x"}', "", True)
        file = os.open(tmp_path / "extension.so", os.O_RDONLY)
        return BuildReply(b'{"kind": "bound"}', [file], made, (), ("cblas_sgemm",))

    def judge(channel: socket.socket) -> tuple[BuildReply, bytes]:
        reply = MainProcess(channel, cancellation[0]).build(b'{"name": "x"}', disabled=True)
        with channels.closing(reply.descriptors):
            return reply, os.read(reply.descriptors[0], 100)

    reply, content = served(serve, judge)
    assert (reply.body, reply.build, reply.library_symbols) == (b'{"kind": "bound"}', made, ("cblas_sgemm",))
    assert content == b"extension"


@pytest.mark.parametrize("error", [BadBuildRequest("malformed"), BuildUnavailable("no g++", "install it")], ids=repr)
def test_an_error_of_a_build_is_raised_in_the_judge(cancellation: tuple[CancelWatch, int], error: Exception) -> None:
    def serve(*_: Any, **__: Any) -> BuildReply:
        raise error

    with pytest.raises(type(error)) as caught:
        served(serve, lambda channel: MainProcess(channel, cancellation[0]).build(b"{}", disabled=False))
    assert caught.value.args == error.args


def test_a_cancelled_build_ends_and_the_next_one_gets_its_own_reply(cancellation: tuple[CancelWatch, int]) -> None:
    watch, cancels = cancellation
    started, stopped = threading.Event(), threading.Event()

    def serve(request: Any, requested: bytes, gpu: str, check: Any, *, disabled: bool) -> BuildReply:
        if requested == b"first":
            started.set()
            try:
                while not stopped.wait(0.01):
                    check()
            finally:
                stopped.set()
        return BuildReply(requested, [], ExtensionBuild("bound"))

    def judge(channel: socket.socket) -> bytes:
        main_process = MainProcess(channel, watch)
        canceller = threading.Thread(target=lambda: started.wait(DEADLINE_S) and os.write(cancels, b"x"))
        canceller.start()
        with pytest.raises(Cancelled):
            main_process.build(b"first", disabled=False)
        canceller.join()
        os.read(watch.descriptor, 1)
        return main_process.build(b"second", disabled=False).body

    assert served(serve, judge) == b"second"
    assert stopped.is_set()


def test_a_lease_excludes_others_until_the_judge_has_ended(
    cancellation: tuple[CancelWatch, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def is_free() -> bool:
        class Busy(Exception):
            pass

        def give_up() -> None:
            raise Busy

        try:
            with DeviceLease("cpu", give_up).alone():
                return True
        except Busy:
            return False

    def judge(channel: socket.socket) -> list[bool]:
        leases = MainProcess(channel, cancellation[0]).leases("cpu")
        found = []
        with leases.alone() as held:
            found.append(is_free())
            with held.paused():
                found.append(is_free())
        found.append(is_free())
        leases.enter(alone=True)
        return found

    assert served(refused, judge) == [False, True, True]
    assert is_free()


@pytest.mark.parametrize(
    "message",
    [
        b"[" * 4000,
        b"[]",
        b"{}",
        b'{"number": "1"}',
        b'{"number": 1, "lease": "../x", "call": "enter"}',
        b'{"number": 1, "lease": "cpu", "call": "close"}',
    ],
)
def test_a_channel_with_a_malformed_request_is_closed(message: bytes) -> None:
    def judge(channel: socket.socket) -> bytes:
        channel.settimeout(DEADLINE_S)
        channel.send(message)
        return channel.recv(100)

    assert served(refused, judge) == b""


def test_a_content_that_is_no_file_closes_the_channel() -> None:
    def judge(channel: socket.socket) -> bytes:
        channel.settimeout(DEADLINE_S)
        read, write = os.pipe()
        with channels.closing([read, write]):
            channels.send(channel, {"number": 1, "build": False}, None, [read])
            return channel.recv(100)

    assert served(refused, judge) == b""

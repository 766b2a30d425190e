"""Who speaks for a runner: its own code alone, and what that has noticed of itself goes with every answer."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from kernelrl_judge import protocol
from kernelrl_judge.forks import NotForked
from kernelrl_judge.protocol import FrameKind, ProtocolError
from kernelrl_judge.running import Runner, RunnerEnded
from kernelrl_judge.speaking import Hearing, speaking


class Channel:
    """Both ends, where a runner has told its key."""

    def __init__(self) -> None:
        self.judge, self.runner = socket.socketpair()
        self.found = False
        key, self.say = speaking(self.runner, lambda: self.found)
        self.hearing = Hearing()
        protocol.send(self.runner, FrameKind.STARTED, key + b"started")
        assert self.hear().body == b"started"

    def hear(self) -> protocol.Frame:
        frame = protocol.receive(self.judge)
        assert frame is not None
        return self.hearing.heard(frame)


@pytest.fixture
def channel() -> Iterator[Channel]:
    made = Channel()
    with made.judge, made.runner:
        yield made


def test_what_the_runner_says_arrives_as_it_was_said(channel: Channel) -> None:
    for kind, body in ((FrameKind.LOADED, b""), (FrameKind.RESULT, b"outputs")):
        channel.say((kind, body, True))
        assert channel.hear() == protocol.Frame(kind, body)
    assert not channel.hearing.replaced


def test_an_answer_that_another_has_sent_is_none(channel: Channel) -> None:
    protocol.send(channel.runner, FrameKind.LOADED, bytes(40))
    with pytest.raises(ProtocolError, match="LOADED"):
        channel.hear()


def test_an_answer_cannot_be_sent_a_second_time(channel: Channel) -> None:
    channel.say((FrameKind.FACTS, b"nothing", True))
    said = protocol.receive(channel.judge)
    assert said is not None
    channel.hearing.heard(said)
    with pytest.raises(ProtocolError):
        channel.hearing.heard(said)


def test_a_signature_is_that_of_its_body_and_kind(channel: Channel) -> None:
    channel.say((FrameKind.FACTS, b"something", True))
    said = protocol.receive(channel.judge)
    assert said is not None
    for other in (
        protocol.Frame(FrameKind.RESULT, said.body),
        protocol.Frame(said.kind, said.body.replace(b"something", b"elsewhere")),
        protocol.Frame(said.kind, b"\1" + said.body[1:]),
    ):
        with pytest.raises(ProtocolError):
            channel.hearing.heard(other)
    channel.hearing.heard(said)


def test_builds_may_be_asked_for_by_anybody(channel: Channel) -> None:
    protocol.send(channel.runner, FrameKind.BUILD, b"{}")
    assert channel.hear().body == b"{}"


def test_what_was_found_replaced_is_told_with_the_next_answer_and_those_after_it(channel: Channel) -> None:
    channel.found = True
    channel.say((FrameKind.DONE, b"", False))
    channel.hear()
    # Nobody has looked.
    assert not channel.hearing.replaced
    channel.say((FrameKind.STAGED, b"", True))
    channel.hear()
    assert channel.hearing.replaced


def test_a_runner_that_ends_before_it_says_anything_is_no_ending_of_a_candidate() -> None:
    runner: Any = object.__new__(Runner)
    runner._hearing = Hearing()
    runner._status, status = os.pipe()
    with os.fdopen(status, "wb", buffering=0) as file, os.fdopen(runner._status, "rb"):
        file.write(b"exit 70")
        assert isinstance(runner._ended(), NotForked)
        runner._hearing.heard(protocol.Frame(FrameKind.STARTED, bytes(32)))
        file.write(b"exit 70")
        assert isinstance(runner._ended(), RunnerEnded)
